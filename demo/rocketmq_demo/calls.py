"""One request, one answer, over a connection of its own, without an event loop.

For code that starts processes and waits for them: controllers, tests, benchmarks. Longer conversations use
`rocketmq_runtime.remoting.client`.
"""

import socket
import time
import urllib.error
import urllib.request

from rocketmq_formats.addresses import parse_address
from rocketmq_formats.errors import FrameError
from rocketmq_formats.remoting.command import RemotingCommand, encode_frame
from rocketmq_formats.remoting.connection import RemotingConnection

_CHUNK = 65_536


def call(address: str, request: RemotingCommand, *, timeout: float = 3.0) -> RemotingCommand:
    """The answer to `request` from `address` (host:port), with any code.

    Raises:
        OSError: no connection, no answer within `timeout` seconds (TimeoutError), or the peer closed the connection.
    """
    deadline = time.monotonic() + timeout
    frames = RemotingConnection()
    with socket.create_connection(parse_address(address), timeout=timeout) as connection:
        connection.sendall(encode_frame(request))
        while (left := deadline - time.monotonic()) > 0:
            connection.settimeout(left)
            data = connection.recv(_CHUNK)
            if not data:
                raise ConnectionError(f"{address} closed the connection")
            try:
                answers = frames.receive_data(data)
            except FrameError as error:
                raise ConnectionError(f"{address} sent a bad frame: {error}") from error
            for answer in answers:
                if answer.is_response and answer.opaque == request.opaque:
                    return answer
    raise TimeoutError(f"no answer from {address} within {timeout:g} s")


def accepts(address: str, *, timeout: float = 1.0) -> bool:
    """Whether `address` (host:port) accepts connections."""
    try:
        with socket.create_connection(parse_address(address), timeout=timeout):
            return True
    except OSError:
        return False


def http_get(address: str, path: str, *, timeout: float = 2.0) -> tuple[int, str]:
    """Status and text of `/metrics`, `/healthz` or `/readyz` at `host:port`; status 0 without an answer."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""
