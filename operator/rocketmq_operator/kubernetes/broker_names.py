"""Which BrokerGroups have the same brokerName at the same controllers. To the controllers they would be one group: each
would take the replicas of the other for its own, and forget them when they are scaled down or deleted. So the oldest
has the name.

Part of the cache. Controllers are the same where both specs name the same ControllerCluster or controllerAddr.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from rocketmq_formats.addresses import parse_addresses
from rocketmq_resources.decoding import Json


class GroupName(NamedTuple):
    """Of a BrokerGroup."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"BrokerGroup {self.namespace}/{self.name}"


_Place = tuple[str, ...]
"""The controllers and the brokerName."""


class BrokerNames:
    """Groups by what they are to their controllers."""

    def __init__(self) -> None:
        self._places: dict[GroupName, _Place] = {}
        self._ages: dict[_Place, dict[GroupName, str]] = {}
        """When each was created, as text that sorts."""

    def note(self, group: GroupName, body: Json | None) -> None:
        """This is the group now; None: it is gone."""
        before = self._places.pop(group, None)
        if before is not None:
            ages = self._ages[before]
            del ages[group]
            if not ages:
                del self._ages[before]
        place = None if body is None else _place(group, _mapping(body.get("spec")))
        if place is not None and body is not None:
            self._places[group] = place
            created = str(_mapping(body.get("metadata")).get("creationTimestamp", ""))
            self._ages.setdefault(place, {})[group] = created

    def holder(self, group: GroupName) -> GroupName | None:
        """The BrokerGroup that has the name, if it is not this one."""
        place = self._places.get(group)
        if place is None:
            return None
        ages = self._ages[place]
        oldest = min(ages, key=lambda one: (ages[one], one))
        return None if oldest == group else oldest


def _place(group: GroupName, spec: Json) -> _Place | None:
    """None: it has no controllers, or its spec says nothing that can be read."""
    name = str(spec.get("brokerName") or group.name)
    reference, addresses = _mapping(spec.get("controllerRef")), spec.get("controllerAddr")
    if reference:
        return "", str(reference.get("namespace") or group.namespace), str(reference.get("name")), name
    with suppress(ValueError):
        if isinstance(addresses, str):
            return *sorted(parse_addresses(addresses.lower())), name
    return None


def _mapping(value: object) -> Json:
    return value if isinstance(value, Mapping) else {}
