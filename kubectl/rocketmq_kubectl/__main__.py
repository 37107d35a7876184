"""`kubectl-rocketmq`."""

import sys


def main() -> int:
    """Run the command; returns the exit code."""
    return 2


if __name__ == "__main__":
    sys.exit(main())
