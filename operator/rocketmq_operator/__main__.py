"""`python -m rocketmq_operator`: the command `rocketmq-operator`."""

import sys

from rocketmq_operator.main import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
