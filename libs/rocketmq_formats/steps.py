"""Work in steps: a generator that yields where other work may run, and returns its result.

Decoders and tables are pure, without an event loop; the shell that drives them decides how long a slice is
(`rocketmq_runtime.remoting.slow_lane`), or runs all steps at once.
"""

from collections.abc import Generator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]


def finish(steps: Steps[T]) -> T:
    """The result, all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
