"""A host as records have it, and the wall clock in milliseconds."""

import ipaddress
import socket
import time


def numeric(host: str) -> str:
    """`host` as an IP address: records hold no names. Of a name IPv4 before IPv6, loopback if it is unknown."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return "127.0.0.1"
    return str(min(found, key=lambda one: one[0] != socket.AF_INET)[4][0])


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
