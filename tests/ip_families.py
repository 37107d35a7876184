"""The mark of tests that need IPv6. A machine without it skips them on a laptop and fails them with CI=true."""

import socket

import pytest

from tests.needed import IN_CI

LOOPBACK_6 = "::1"


def has_loopback_6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as one:
            one.bind((LOOPBACK_6, 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_loopback_6() and not IN_CI, reason="this machine has no IPv6 loopback address")
