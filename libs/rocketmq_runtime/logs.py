"""Logs of every process: structlog events with key/value pairs, to stderr, as JSON lines or for a console.

Messages are constant; everything that varies is a key, and its value is cut and cleaned (`log_values.py`), since most
come from strangers. Logs of libraries (stdlib logging) pass through the same
renderer.

Lines are limited by their message, in all code, because what anybody sends must not fill the log. A line says how
many were left out. No message takes the room of another one: our messages are constant, so their number bounds them.
"""

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, TextIO

import structlog
from structlog.typing import Processor

from rocketmq_runtime.log_limiter import LogLimiter
from rocketmq_runtime.log_values import bound_values
from rocketmq_settings.declare import LogFormat, LogLevel

log = structlog.get_logger(__name__)

LOG_SECONDS: Final = 60.0
LINES_OF_EVENT: Final = 200
"""Lines with the same message in LOG_SECONDS."""
LINES: Final = 3000
"""Lines of all libraries, whose messages vary, in LOG_SECONDS; and of all in BY_BROKER."""
LINES_OF_BROKER: Final = 20
BY_BROKER: Final = frozenset({"election", "no replica is elected"})
"""Messages about a group that controllers elect for: LINES_OF_BROKER for each broker name, so that hundreds of groups
that fail over together are all in the log."""
NAMED: Final = 10
"""Messages that the line about left out lines names."""


class BoundedHandler(logging.StreamHandler[TextIO]):
    """Writes at most LINES_OF_EVENT lines of one message in LOG_SECONDS, and before the next line, or at the end, how
    many it and every `LogLimiter` left out. Lines below INFO and of CRITICAL always pass."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: monotonic seconds."""
        super().__init__(stream)
        self._clock = clock
        self._ours = LogLimiter(clock, LOG_SECONDS, lines=LINES_OF_EVENT, total=sys.maxsize)
        self._libraries = LogLimiter(clock, LOG_SECONDS, lines=LINES_OF_EVENT, total=LINES)
        self._by_broker = LogLimiter(clock, LOG_SECONDS, lines=LINES_OF_BROKER, total=LINES)
        self._telling = False
        self._left_out: Counter[str] = Counter()
        self._told = clock()
        self._told_of = LogLimiter.left_out

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, if it may be written."""
        if not self._telling:
            event = _event(record)
            if logging.INFO <= record.levelno < logging.CRITICAL and not self._may_log(record, event):
                if len(self._left_out) < LINES_OF_EVENT or event in self._left_out:
                    self._left_out[event] += 1
                return
            if self._clock() - self._told >= LOG_SECONDS:
                self._tell()
        super().emit(record)

    def close(self) -> None:
        """Say what was left out last."""
        if self in logging.getLogger().handlers and not self.stream.closed:
            self._tell()
        super().close()

    def _may_log(self, record: logging.LogRecord, event: str) -> bool:
        if not isinstance(record.msg, dict):
            return self._libraries(f"{record.name} {event}")
        if event in BY_BROKER:
            return self._by_broker(f"{event} {record.msg.get('broker')}")
        return self._ours(f"{record.name} {event}")

    def _tell(self) -> None:
        self._told, told_of = self._clock(), self._told_of
        self._told_of = LogLimiter.left_out
        most, self._left_out = dict(self._left_out.most_common(NAMED)), Counter()
        if self._told_of > told_of:
            self._telling = True
            try:
                log.warning("log lines left out", count=self._told_of - told_of, most=most)
            finally:
                self._telling = False


def _event(record: logging.LogRecord) -> str:
    """The message without what varies."""
    message = record.msg
    return str(message.get("event")) if isinstance(message, dict) else str(message)


def configure(log_format: LogFormat, level: LogLevel) -> None:
    """Set up structlog and stdlib logging for this process; called once, before anything logs."""
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if log_format == "json":
        # Local variables may hold secrets: they stay out of the log.
        tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        renderer: list[Processor] = [
            structlog.processors.ExceptionRenderer(tracebacks),
            bound_values,
            structlog.processors.JSONRenderer(),
        ]
    else:
        renderer = [
            structlog.processors.format_exc_info,
            bound_values,
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    structlog.configure(
        processors=[structlog.stdlib.filter_by_level, *shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = BoundedHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    set_level(level)


def set_level(level: LogLevel) -> None:
    """Lines below `level` are left out from now on."""
    logging.getLogger().setLevel(level.upper())
