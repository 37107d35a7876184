"""Loopback ports that were free a moment ago, for servers in the test's own loop. Processes that take seconds to bind
theirs get them from the demo's `PortPool`."""

import socket


def free_ports(count: int) -> list[int]:
    """Different ones."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports
