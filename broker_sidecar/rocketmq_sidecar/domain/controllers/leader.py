"""Finds the leading controller: asks all of them at once (1005), and repeats that until one is known. Pure.

A leader is given up when it answers that it does not lead (2007), when its connection breaks, and when it has not
answered for a while. The others name a controller that hangs for some time, so then only its own answer counts.

Controllers name the leader by the address that they know, which may lead nowhere from here, or to another of them (NAT,
port mappings, names of another network). So a name that is not configured is asked only when the configured addresses
had their chance, and leads only by its own answer. So does a configured one that has denied that it leads.

One group of controllers (controllerDLegerGroup) counts: the one at which this replica has registered, by its file
(`control.controllers_file`), or the first leader's. At an address that was given out again another group may answer,
which knows other masters.
"""

from typing import Final

from rocketmq_formats.remoting.controller import GetMetaDataResponseHeader
from rocketmq_sidecar.domain.actions import Request
from rocketmq_sidecar.domain.controllers.requests import metadata

MAX_GROUP: Final = 255
"""Characters of a group's name; a longer one is not compared."""


class LeaderFinder:
    """`leader` is the address of the leading controller, if known."""

    def __init__(self, controllers: tuple[str, ...], *, interval: float, group: str | None = None) -> None:
        """`interval`: seconds between two rounds of asking. `group`: as in the file, if it is known."""
        self.leader: str | None = None
        self._controllers = controllers
        self._interval = interval
        self._asked: dict[str, Request] = {}
        self._suspects: set[str] = set()
        self._denied: set[str] = set()
        """Configured addresses whose controller answered that it does not lead, though others may say so."""
        self._named: str | None = None
        self._round_at = float("-inf")
        self.group = group
        """The group of controllers that counts; None before a leader has named it."""
        self.foreign: str | None = None
        """Which controller is of another group, with both; None once a leader is known."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Every controller, and the leader, even if its name differs from the configured ones."""
        if self.leader is None or self.leader in self._controllers:
            return self._controllers
        return (*self._controllers, self.leader)

    @property
    def wake_at(self) -> float | None:
        """When to call `requests` next; None if only events matter."""
        return self._round_at if self.leader is None else None

    def requests(self, now: float) -> tuple[Request, ...]:
        """The requests that are due now."""
        if self.leader is not None:
            return ()
        addresses: tuple[str, ...] = ()
        if now >= self._round_at:
            self._round_at = now + self._interval
            addresses = self._controllers
        elif self._asked:
            return ()  # the leader may answer under a configured address
        if self._named is not None:
            addresses, self._named = (*addresses, self._named), None
        requests = tuple(metadata(address, now) for address in addresses if address not in self._asked)
        self._asked.update((request.address, request) for request in requests)
        return requests

    def on_answer(self, request: Request, answer: GetMetaDataResponseHeader | None) -> None:
        """A controller's answer about the quorum; None if there was none that can be read."""
        if self._asked.get(request.address) is not request:
            return  # from before a `reset`
        del self._asked[request.address]
        if answer is None:
            return
        self.on_response(request.address)
        foreign = other_controllers(self.group, request.address, answer)
        if foreign is not None:
            self.foreign = foreign
            return
        if self.leader is not None:
            return
        named = answer.controller_leader_address
        if answer.is_leader:
            self.leader, self._named = request.address, None
            self._learn_group(answer)
            self._denied.discard(request.address)
        elif not named or named in self._suspects or named in self._denied:
            return
        elif named in self._controllers:
            self.leader, self._named = named, None
            self._learn_group(answer)
        elif named != request.address:
            self._named = named

    def on_response(self, address: str) -> None:
        """It answered, so it does not hang."""
        self._suspects.discard(address)

    def not_leader(self, address: str) -> None:
        """It answered that it does not lead."""
        if address in self._controllers:
            self._denied.add(address)
        self._give_up(address)

    def suspect(self, address: str) -> None:
        """It does not answer, or cannot be reached."""
        self._suspects.add(address)
        self._give_up(address)

    def reset(self) -> None:
        """All connections are closed; answers can no longer come."""
        self.leader = self._named = None
        self._asked.clear()
        self._suspects.clear()
        self._denied.clear()
        self._round_at = float("-inf")

    def _learn_group(self, answer: GetMetaDataResponseHeader) -> None:
        self.group, self.foreign = self.group or group_name(answer), None

    def _give_up(self, address: str) -> None:
        if address == self.leader:
            self.leader = None
        if address == self._named:
            self._named = None


def other_controllers(ours: str | None, address: str, answer: GetMetaDataResponseHeader) -> str | None:
    """Why the controller at `address` must not be believed, with both groups and what to do; None if it is of the group
    `ours`, or does not say, or this replica has none yet."""
    theirs = group_name(answer)
    if ours is None or theirs in {None, ours}:
        return None
    return (
        f"{address} is of the controllers' group {theirs}, not of {ours}: correct controllerAddr; or, if they are this"
        " replica's controllers from now on, delete .controllers.meta in storePathRootDir and start the sidecar again"
    )


def group_name(answer: GetMetaDataResponseHeader) -> str | None:
    """The group that a controller says it is of."""
    return answer.group if answer.group and len(answer.group) <= MAX_GROUP else None
