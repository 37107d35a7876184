"""Where a field of a resource has another default, or other bounds, than the key that it sets, and why.

All others are declared once, in `rocketmq_settings`; tests/operator/resources/test_fields_and_keys.py compares them.
"""

from collections.abc import Mapping
from typing import Final, Literal

Part = Literal["default", "bounds"]

_ACTING: Final = "The field also says what an acting master does; the key only whether there is one."
_MODE: Final = "The field is a choice of words, so that more can be added; the key is true or false."
_REPLICAS: Final = "A group has at most nine pods; the key also counts replicas elsewhere."

DIFFERENCES: Final[Mapping[tuple[str, Part], str]] = {
    ("spec.actingMaster", "bounds"): _ACTING,
    ("spec.actingMaster", "default"): _ACTING,
    ("spec.failover.heartbeatIntervalMs", "default"): (
        "A quarter of the default lease, which is also what a native replica makes of the key's default, Java's 1000."
    ),
    ("spec.failover.heartbeatIntervalMs", "bounds"): (
        "An official broker uses the value as it is: more would look like silence, less is only load. The key may "
        "have any value, as in Java's files: a native replica uses at most a quarter of its lease."
    ),
    ("spec.failover.mode", "bounds"): _MODE,
    ("spec.failover.mode", "default"): _MODE,
    ("spec.minInSyncReplicas", "bounds"): _REPLICAS,
    ("spec.replicas", "bounds"): _REPLICAS,
    ("spec.verification.rateLimit", "default"): (
        "A comparison that runs by a schedule leaves the disks to replication and consumers."
    ),
    ("spec.replicas", "default"): "A group that survives the loss of a replica; the key's default is Java's.",
}
"""The field, what differs, and the reason."""
