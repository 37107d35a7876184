"""`rocketmq-broker`: a broker (`command`), or with --pre-stop the wait for another process's end (`pre_stop`).

The latter is a hook that the kubelet runs beside a running broker, so it must not load the broker's modules.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from rocketmq_broker.pre_stop import wait_for_sidecar

PRE_STOP = "--pre-stop"
"""Takes the sidecar's socket. The only command without a configuration, so it is parsed apart from the others."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if len(words) == 2 and words[0] == PRE_STOP:
        if not wait_for_sidecar(Path(words[1])):
            print(f"rocketmq-broker: the sidecar at {words[1]} has not ended", file=sys.stderr)
        return 0
    from rocketmq_broker.command import run  # noqa: PLC0415 - see above

    return run(words)


if __name__ == "__main__":
    sys.exit(main())
