"""What a spec refers to and cannot be used, for the conditions of all kinds."""

from collections.abc import Iterable
from typing import Final

from rocketmq_operator.domain.observed import Reference
from rocketmq_operator.domain.plan.step import NOTHING, Blocked, Step

NOT_FOUND: Final = "ReferenceNotFound"
INVALID: Final = "ReferenceInvalid"
REASONS: Final = frozenset({NOT_FOUND, INVALID})
LOOK_AGAIN_SECONDS: Final = 5.0
"""No event reports that a Secret was created."""


def bad_references(problems: Iterable[tuple[Reference, str]]) -> Step:
    """Report them. Until they are good no pod is replaced: it might not start again. Empty text: it does not exist."""
    found = tuple(problems)
    if not found:
        return NOTHING
    message = "; ".join(f"{reference} {problem or 'does not exist'}" for reference, problem in found)
    reason = INVALID if all(problem for _, problem in found) else NOT_FOUND
    secret = any(reference.kind == "Secret" for reference, _ in found)
    return Step(busy=True, blocked=Blocked(reason, message), requeue=LOOK_AGAIN_SECONDS if secret else None)
