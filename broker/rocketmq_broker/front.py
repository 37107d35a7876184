"""The door for clients, tools and other brokers: request codes to processors, on both ports.

`app.py` fills the table; each processor lives in the module of its subject. Malformed requests end here with a code and
a remark.
"""

from collections.abc import Callable, Mapping

from rocketmq_broker.domain.refusal import RefusedError
from rocketmq_formats.errors import FormatError
from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_runtime.server import Answer, Peer

Processor = Callable[[RemotingCommand, Peer], Answer]
"""Answers requests of one or more codes, in the event loop: it must not block. May raise `RefusedError` and
`FormatError`."""

CloseListener = Callable[[Peer], None]


class Front:
    """Implements `rocketmq_runtime.server.Handler`; one object serves both ports."""

    def __init__(self) -> None:
        self._processors: dict[int, Processor] = {}
        self._close_listeners: list[CloseListener] = []

    def register(self, processors: Mapping[int, Processor]) -> None:
        """Add processors by request code; every code has one."""
        twice = processors.keys() & self._processors.keys()
        assert not twice, f"two processors for {sorted(twice)}"
        self._processors.update(processors)

    def on_peer_closed(self, listener: CloseListener) -> None:
        """`listener` is told of every connection that ends."""
        self._close_listeners.append(listener)

    def on_request(self, request: RemotingCommand, peer: Peer) -> Answer:
        """Answer one request; see `server.Handler`."""
        processor = self._processors.get(request.code)
        if processor is None:
            remark = f" request type {request.code} not supported"
            return response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        try:
            return processor(request, peer)
        except RefusedError as error:
            return response(request, error.code, str(error))
        except FormatError as error:
            return response(request, error.response_code, str(error))

    def on_close(self, peer: Peer) -> None:
        """See `server.Handler`."""
        for listener in self._close_listeners:
            listener(peer)
