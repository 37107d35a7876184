"""Polls each controller for the state of the group all the time, and checks the answers against the rules by name.

An answer counts as given at some instant between its request and its arrival. Two answers contradict each other only
if the second was requested after the first had arrived.

One connection to each controller stays open, and requests follow each other whether or not the ones before were
answered. So a controller that got no processor finds requests of all ages, the newest from after its successor's first
election, and reads them before it acts on its timers. A new connection would be accepted after that.
"""

import asyncio

from tests.campaign import wire
from tests.campaign.cluster import Cluster, GroupState, ask_state
from tests.campaign.timeline import Roles

PERIOD = 0.05
SILENCE = 2.0
"""Seconds without any answer after which a controller gets a new connection: after a partition the old one may stay
silent for about as long as that lasted."""


class Rules:
    """Rules for the answers of all controllers together; `violations` are sentences."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.elections = 0
        self.newest = (0, 0)
        """masterEpoch and syncStateSetEpoch of the newest answer so far."""
        self.roles: list[Roles] = []
        """Each newer answer."""
        self._masters: dict[int, int] = {}
        self._sets: dict[int, tuple[int | None, frozenset[int]]] = {}

    def judge(self, state: GroupState, *, asked_after: tuple[int, int], at: float = 0.0) -> None:
        """Check one answer, which arrived `at` seconds; `asked_after` is what `newest` was when its request left."""
        epochs = state.master_epoch, state.set_epoch
        if epochs[0] < asked_after[0] or epochs[1] < asked_after[1]:
            self._violated("epochs go back", f"{asked_after} was answered before {epochs} was asked for")
        if epochs > self.newest:
            self.roles.append(Roles(at, state.master, state.master_epoch, state.in_sync))
        self.newest = max(self.newest[0], epochs[0]), max(self.newest[1], epochs[1])
        if state.master is None:
            return
        if state.master_epoch not in self._masters:
            self.elections += 1
        known_master = self._masters.setdefault(state.master_epoch, state.master)
        if known_master != state.master:
            self._violated("OneMasterPerEpoch", f"epoch {state.master_epoch} of both {known_master} and {state.master}")
        if state.master not in state.in_sync:
            self._violated("the master is in its set", f"{state.master} not in {sorted(state.in_sync)}")
        known = self._sets.setdefault(state.set_epoch, (state.master, state.in_sync))
        if known[1] != state.in_sync:
            both = f"{sorted(known[1])} and {sorted(state.in_sync)}"
            self._violated("one set per syncStateSetEpoch", f"{state.set_epoch}: {both}")
        before = self._sets.get(state.set_epoch - 1)
        if before is not None and before[0] != state.master and state.master not in before[1]:
            self._violated("MasterFromSyncSet", f"{state.master} was not in {sorted(before[1])}")

    def _violated(self, rule: str, what: str) -> None:
        text = f"{rule}: {what}"
        if text not in self.violations:
            self.violations.append(text)


class Watch:
    """One connection to one controller."""

    def __init__(self, connection: wire.Asks, rules: Rules) -> None:
        self._connection = connection
        self._rules = rules
        self._now = asyncio.get_running_loop().time
        self._heard = self._now()

    @property
    def over(self) -> bool:
        """The connection is closed, or has been silent for SILENCE."""
        return self._connection.closed or self._now() - self._heard > SILENCE

    async def ask(self) -> None:
        """Send one request, and check the answer when it comes."""
        newest = self._rules.newest
        try:
            state = await ask_state(self._connection, 2 * SILENCE)
        except wire.RemotingError:
            return
        self._heard = self._now()
        if state is not None:
            self._rules.judge(state, asked_after=newest, at=self._heard)


class Watcher:
    """Polls until it is stopped."""

    def __init__(self, cluster: Cluster) -> None:
        self.rules = Rules()
        self._cluster = cluster
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        for address in self._cluster.controller_addresses:
            self._tasks.append(asyncio.create_task(self._watch(address)))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result

    async def _watch(self, address: str) -> None:
        while True:
            try:
                connection = await wire.Connection.open(address, 1.0)
            except OSError:
                await asyncio.sleep(PERIOD)
                continue
            watch = Watch(connection, self.rules)
            async with asyncio.TaskGroup() as requests:
                try:
                    while not watch.over:
                        requests.create_task(watch.ask())
                        await asyncio.sleep(PERIOD)
                finally:
                    connection.close()  # which ends the requests too
