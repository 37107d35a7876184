"""The name server: who serves which topic, for clients and brokers."""

from rocketmq_runtime import quick_structlog as quick_structlog
