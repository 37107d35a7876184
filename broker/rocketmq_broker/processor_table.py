"""Maps request codes to processors, for clients, tools and other brokers, on both ports (Java's processorTable).

`services.py` fills the table; each processor lives in the module of its subject. Malformed requests end here with a
code and a remark.
"""

import asyncio
from collections.abc import Callable, Mapping

import structlog

from rocketmq_broker.domain.errors import RequestRefusedError
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.errors import FormatError
from rocketmq_formats.remoting.command import RemotingCommand, response
from rocketmq_formats.remoting.unsupported import not_supported
from rocketmq_runtime.log_limiter import LogLimiter
from rocketmq_runtime.remoting.server import MAX_REMARK, Answer, Peer
from rocketmq_store.errors import StoreError

log = structlog.get_logger(__name__)

LOG_SECONDS = 60.0
"""Between two log lines about the same kind of request that failed on the disk."""
Processor = Callable[[RemotingCommand, Peer], Answer]
"""Answers requests of one or more codes, in the event loop: it must not block. May raise `RequestRefusedError`,
`FormatError`, and, where it reads the store, `StoreError` and `OSError`."""

CloseListener = Callable[[Peer], None]


class ProcessorTable:
    """Implements `rocketmq_runtime.remoting.server.Handler`; one object serves both ports."""

    def __init__(self) -> None:
        self._processors: dict[int, Processor] = {}
        self._close_listeners: list[CloseListener] = []
        self._may_log = LogLimiter(asyncio.get_running_loop().time, LOG_SECONDS)

    def register(self, processors: Mapping[int, Processor]) -> None:
        """Add processors by request code; every code has one."""
        twice = processors.keys() & self._processors.keys()
        assert not twice, f"two processors for {sorted(twice)}"
        self._processors.update(processors)

    @property
    def codes(self) -> frozenset[int]:
        """Request codes that have a processor."""
        return frozenset(self._processors)

    def on_peer_closed(self, listener: CloseListener) -> None:
        """`listener` is called for every connection that closes."""
        self._close_listeners.append(listener)

    def on_request(self, request: RemotingCommand, peer: Peer) -> Answer:
        """Answer one request; see `server.Handler`."""
        processor = self._processors.get(request.code)
        if processor is None:
            return response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, not_supported(request.code))
        try:
            return processor(request, peer)
        except RequestRefusedError as error:
            return response(request, error.code, str(error))
        except FormatError as error:
            return response(request, error.response_code, str(error))
        except (StoreError, OSError) as error:
            return self.unreadable(request, error)

    def unreadable(self, request: RemotingCommand, error: Exception) -> RemotingCommand:
        """The answer to a request that failed because the store cannot be read."""
        if self._may_log(f"{request.code} {type(error).__name__}"):
            log.error("store cannot be read: check the disk", code=request.code, reason=str(error))
        return response(request, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}"[:MAX_REMARK])

    def on_close(self, peer: Peer) -> None:
        for listener in self._close_listeners:
            listener(peer)
