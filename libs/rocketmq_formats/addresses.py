"""Addresses as configuration, tools and bodies have them: `host:port`, and lists of them joined by `;`.

The one place that takes them apart and puts them together. An IPv6 address stands in brackets; Java writes it without,
so that is read too. A host that is neither an IP address nor a legal name is refused: no connection can ever succeed.
Source: rocketmq-all-5.3.3: NetworkUtil.java, BrokerStartup.java.
"""

import ipaddress
import re

_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = re.compile(rf"(?=.*[A-Za-z])(?=.{{1,254}}\Z){_LABEL}(?:\.{_LABEL})*\.?", re.ASCII)
"""Of a host; what has no letter is an IP address, or a wrong one."""


def parse_host(text: str) -> str:
    """A host's name or IP address, without the brackets that IPv6 may have.

    Raises:
        ValueError: neither.
    """
    bracketed = text[:1] + text[-1:] == "[]"
    host = text[1:-1] if bracketed else text
    try:
        legal = ipaddress.ip_address(host).version == 6 or not bracketed
    except ValueError:
        legal = not bracketed and _NAME.fullmatch(host) is not None
    if not legal:
        raise ValueError(f"{text[:300]!r} is neither an IP address nor the name of a host")
    return host


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `host:port`.

    Raises:
        ValueError: no such host (`parse_host`), no port, or not a number from 1 to 65535.
    """
    host, separator, port = text.rpartition(":")
    digits = port.isascii() and port.isdecimal() and len(port) <= 5
    if not separator or not digits or not 0 < int(port) < 65536:
        raise ValueError(f"not an address of the form host:port: {text[:300]!r}")
    try:
        return parse_host(host), int(port)
    except ValueError as error:
        raise ValueError(f"{text[:300]!r}: {error}") from error


def parse_addresses(text: str) -> tuple[str, ...]:
    """The addresses of `host:port;host:port`, each once; blanks around them and empty parts do not count.

    Raises:
        ValueError: one of them does not parse, or a text that is not blank has none.
    """
    addresses = tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split(";")))))
    for address in addresses:
        try:
            parse_address(address)
        except ValueError as error:
            advice = ", and `;` stands between addresses" if "," in address else ""
            raise ValueError(f"{error}{advice}") from error
    if text.strip() and not addresses:
        raise ValueError(f"{text[:300]!r} holds no address")
    return addresses


def host_of(address: str) -> str:
    """The host in `host:port`, an IP address in one form of text; "" if it is no address."""
    try:
        host, _ = parse_address(address)
    except ValueError:
        return ""
    try:
        number = ipaddress.ip_address(host)
    except ValueError:
        return host
    return str(getattr(number, "ipv4_mapped", None) or number)


def format_address(host: str, port: int) -> str:
    """What `parse_address` reads."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def of_family(hosts: str, family: str) -> str:
    """One of several IP addresses, `10.0.0.7,fd00::7` as Kubernetes lists those of a pod: the first of the family, IPv4
    or IPv6, else the first. A text without a comma, or with a part that is no IP address, comes back as it is."""
    if "," not in hosts:
        return hosts
    try:
        numbers = [ipaddress.ip_address(parse_host(part)) for part in hosts.split(",")]
    except ValueError:
        return hosts
    return str(next((number for number in numbers if f"IPv{number.version}" == family), numbers[0]))
