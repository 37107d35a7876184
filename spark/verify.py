"""For spark-submit, which needs a file: `spark-submit ... verify.py --replica ...`. The same as `rocketmq-verify`."""

import sys

from rocketmq_verify.__main__ import main
from rocketmq_verify.engine.submitted import keep_apart

if __name__ == "__main__":
    keep_apart()
    sys.exit(main())
