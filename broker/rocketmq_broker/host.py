"""A host as records have it, and the wall clock in milliseconds."""

import ipaddress
import socket
import time

from rocketmq_formats.addresses import parse_host


def numeric(host: str) -> str:
    """`host` as an IP address, of an IPv4 one if it has both: records hold no names.

    Raises:
        OSError: the name does not resolve.
    """
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    place = min(found, key=lambda entry: entry[0] != socket.AF_INET)[-1]
    return str(place[0]).partition("%")[0]


def check_resolves(key: str, address: str) -> None:
    """A configured address of this host, which may be empty.

    Raises:
        ValueError: it is a name that does not resolve.
    """
    if not address:
        return
    try:
        numeric(parse_host(address))
    except OSError as error:
        raise ValueError(f"{key}={address}: the name does not resolve ({error.strerror or error})") from error


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
