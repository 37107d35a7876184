"""The process beside each native broker: identity, epochs, role, write lease and replication of the log."""

from rocketmq_runtime import quick_structlog as quick_structlog
