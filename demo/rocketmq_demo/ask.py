"""One question, one answer, over a connection of its own, without an event loop.

For those who start processes and wait for them: controllers, tests, benchmarks. Whatever talks for longer uses
`rocketmq_runtime.client`.
"""

import socket
import time
import urllib.error
import urllib.request

from rocketmq_formats.errors import FrameError
from rocketmq_formats.remoting.command import RemotingCommand, encode_frame
from rocketmq_formats.remoting.connection import RemotingConnection
from rocketmq_runtime.client import parse_address

_CHUNK = 65_536


def ask(address: str, request: RemotingCommand, *, timeout: float = 3.0) -> RemotingCommand:
    """The answer to `request` from `address` (host:port), whatever its code.

    Raises:
        OSError: no connection, no answer within `timeout` seconds (TimeoutError), or the other side hung up.
    """
    deadline = time.monotonic() + timeout
    frames = RemotingConnection()
    with socket.create_connection(parse_address(address), timeout=timeout) as connection:
        connection.sendall(encode_frame(request))
        while (left := deadline - time.monotonic()) > 0:
            connection.settimeout(left)
            data = connection.recv(_CHUNK)
            if not data:
                raise ConnectionError(f"{address} hung up")
            try:
                answers = frames.receive_data(data)
            except FrameError as error:
                raise ConnectionError(f"{address} sent a bad frame: {error}") from error
            for answer in answers:
                if answer.is_response and answer.opaque == request.opaque:
                    return answer
    raise TimeoutError(f"no answer from {address} within {timeout:g} s")


def accepts(address: str, *, timeout: float = 1.0) -> bool:
    """Whether somebody listens at `address` (host:port)."""
    try:
        with socket.create_connection(parse_address(address), timeout=timeout):
            return True
    except OSError:
        return False


def http_get(address: str, path: str, *, timeout: float = 2.0) -> tuple[int, str]:
    """Status and text of `/metrics`, `/healthz` or `/readyz` at `host:port`; status 0 if nobody answered."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""
