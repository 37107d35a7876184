"""Logs of every process: structlog events with key/value pairs, to stderr, as JSON lines or for a console.

Messages are constant; everything that varies is a key, and its value is cut and cleaned (`log_values.py`), since most
come from strangers. Logs of libraries (stdlib logging) pass through the same
renderer.
"""

import logging
import sys

import structlog
from structlog.typing import Processor

from rocketmq_runtime.log_values import bound_values
from rocketmq_settings.declare import LogFormat, LogLevel


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
    handler = logging.StreamHandler(sys.stderr)
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
