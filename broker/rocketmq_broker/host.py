"""This host's address, and the wall clock in milliseconds."""

import ipaddress
import socket
import time

_ELSEWHERE = ("192.0.2.1", 9)
"""An address reserved for documentation; nothing is sent to it."""


def own_address() -> str:
    """The IPv4 address of this host's default route; loopback without a network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)  # UDP: this only looks up the route
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def numeric(host: str) -> str:
    """`host` as an IP address: records hold no names. Loopback if the name is unknown."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return socket.gethostbyname(host)
    except OSError:
        return "127.0.0.1"


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
