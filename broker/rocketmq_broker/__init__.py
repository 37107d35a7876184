"""The native engine: the client protocol over a commit log that it appends to while it holds the write lease."""

from rocketmq_runtime import quick_structlog as quick_structlog
