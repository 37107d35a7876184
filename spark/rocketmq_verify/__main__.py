"""`rocketmq-verify` and `python -m rocketmq_verify`."""

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    # Read when gRPC is imported. Unset, gRPC starts threads in the child of a fork, and pyspark's child, which is to
    # become the JVM, now and then aborts before it does (grpc/grpc#43055). No child here uses its parent's channels.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    from rocketmq_verify import cli  # noqa: PLC0415 - imports gRPC

    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
