"""`rocketmq-verify` and `python -m rocketmq_verify`."""

import sys
from collections.abc import Sequence

from rocketmq_verify import cli


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    return cli.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
