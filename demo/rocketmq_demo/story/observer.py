"""Polls the group's state from the controllers (1005, 1006, metrics), as any tool could.

The story waits for states, the view shows them. A state is a fraction of a second old.
"""

import asyncio
import re
import time
from collections.abc import Callable
from itertools import pairwise

import msgspec

from rocketmq_demo.controllers import ControllerCluster, ControllerProcess
from rocketmq_demo.story.timeline import Kind, Timeline
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.errors import FormatError
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.controller import BrokerReplicasInfo, GetMetaDataResponseHeader, ReplicasInfo
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_runtime import background
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError

PERIOD = 0.1
TERM_PERIOD = 0.5
TIMEOUT = 0.5
_TERM = re.compile(r"^rocketmq_controller_raft_term(?:\{[^}]*\})? (\S+)$", re.MULTILINE)


class ReplicaView(msgspec.Struct, frozen=True):
    """One replica, as the leading controller reports it."""

    broker_id: int
    address: str
    master: bool
    in_sync: bool
    alive: bool


class GroupView(msgspec.Struct, frozen=True):
    """The broker group, as the leading controller reports it."""

    master_id: int | None
    master_epoch: int
    sync_state_set_epoch: int
    replicas: tuple[ReplicaView, ...]

    @property
    def in_sync(self) -> frozenset[int]:
        """Members of the SyncStateSet that live; a strict group keeps others too."""
        return frozenset(replica.broker_id for replica in self.replicas if replica.in_sync and replica.alive)

    def by_address(self, address: str) -> ReplicaView | None:
        """The replica that is registered with this address."""
        return next((replica for replica in self.replicas if replica.address == address), None)


class ControllerView(msgspec.Struct, frozen=True):
    """One controller; `role` is leader, follower, silent or down; `term` is unset while it does not answer."""

    member: str
    address: str
    role: str
    term: int | None


class Observer:
    """Polls until cancelled."""

    def __init__(self, controllers: ControllerCluster, broker_name: str, timeline: Timeline) -> None:
        self.group: GroupView | None = None
        """The latest state; None before the first one. Kept while no controller leads."""
        self.group_seen_at = float("-inf")
        """Monotonic seconds of that state."""
        self.controllers: tuple[ControllerView, ...] = ()
        self._cluster = controllers
        self._broker_name = broker_name
        self._timeline = timeline
        self._terms: dict[str, int] = {}
        self._leader: str | None = None

    async def run(self) -> None:
        """Poll until cancelled."""
        client = RemotingClient(connect_timeout=TIMEOUT)
        terms = background.start(self._read_terms(), "terms of the controllers")
        try:
            while True:
                await self._poll(client)
                await asyncio.sleep(PERIOD)
        finally:
            terms.cancel()
            await client.close()

    async def wait(self, what: str, condition: Callable[[], bool], seconds: float) -> None:
        """Wait until `condition` holds.

        Raises:
            TimeoutError: it did not within `seconds`; the text contains `what`.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {seconds:g} s without success: {what}")
            await asyncio.sleep(PERIOD / 4)

    async def _poll(self, client: RemotingClient) -> None:
        processes = list(self._cluster)
        self.controllers = tuple(await asyncio.gather(*(self._controller(client, process) for process in processes)))
        leader = next((view for view in self.controllers if view.role == "leader"), None)
        if leader is None:
            return
        if leader.member != self._leader:
            self._leader = leader.member
            self._timeline.add(Kind.CHANGE, f"controller {leader.member} leads")
        names = encode_body([self._broker_name])
        answer = await _call(client, leader.address, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, names)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return
        try:
            table = decode_body(BrokerReplicasInfo, answer.body).replicas_info_table
        except FormatError:
            return
        if self._broker_name in table:
            self._update(_group(table[self._broker_name]))

    async def _controller(self, client: RemotingClient, process: ControllerProcess) -> ControllerView:
        role, term = "down", None
        if process.alive:
            answer = await _call(client, process.address, RequestCode.CONTROLLER_GET_METADATA_INFO)
            role = "silent"
            if answer is not None:
                role = "leader" if _leads(answer) else "follower"
                term = self._terms.get(process.member)
        return ControllerView(process.member, process.address, role, term)

    async def _read_terms(self) -> None:
        while True:
            for process in list(self._cluster):
                if process.alive:
                    _, text = await asyncio.to_thread(process.http, "/metrics", TIMEOUT)
                    if found := _TERM.search(text):
                        self._terms[process.member] = int(float(found[1]))
            await asyncio.sleep(TERM_PERIOD)

    def _update(self, group: GroupView) -> None:
        before, self.group, self.group_seen_at = self.group, group, time.monotonic()
        for text in changes(before, group):
            self._timeline.add(Kind.CHANGE, text)


def changes(before: GroupView | None, after: GroupView) -> list[str]:
    """The differences between two states, in words."""
    texts = []
    if after.master_id != (before.master_id if before else None) or (
        before is not None and before.master_epoch != after.master_epoch
    ):
        texts.append(
            f"broker {after.master_id} is master, epoch {after.master_epoch}"
            if after.master_id is not None
            else f"no master, epoch {after.master_epoch}"
        )
    if before is None or before.in_sync != after.in_sync:
        texts.append(f"in sync: {', '.join(map(str, sorted(after.in_sync))) or 'none'}")
    return texts


def longest_gap(times: list[float], since: float, until: float) -> float:
    """The longest time between two neighbours of `times` (ascending) that touches `since`..`until`, in seconds. Time
    after the last of them counts as a gap until `until`."""
    longest = 0.0
    for earlier, later in pairwise([*times, max(until, times[-1])] if times else []):
        if later > since and earlier < until:
            longest = max(longest, later - earlier)
    return longest


def _group(info: ReplicasInfo) -> GroupView:
    replicas = [
        ReplicaView(
            broker_id=replica.broker_id,
            address=replica.broker_address,
            master=replica.broker_id == info.master_broker_id,
            in_sync=in_sync,
            alive=replica.alive,
        )
        for in_sync, members in ((True, info.in_sync_replicas), (False, info.not_in_sync_replicas))
        for replica in members
    ]
    return GroupView(
        info.master_broker_id,
        info.master_epoch,
        info.sync_state_set_epoch,
        tuple(sorted(replicas, key=lambda replica: replica.broker_id)),
    )


def _leads(answer: RemotingCommand) -> bool:
    try:
        return decode_header(GetMetaDataResponseHeader, answer.ext_fields or {}).is_leader
    except FormatError:
        return False


async def _call(client: RemotingClient, address: str, code: RequestCode, body: bytes = b"") -> RemotingCommand | None:
    try:
        return await client.call(address, request(code, None, body), timeout=TIMEOUT)
    except RemotingError:
        return None
