"""Before a new master serves: takes over the consumer offsets of other members, where theirs are newer.

A slave may be behind the master that died by what was under way, or by more outside the SyncStateSet or beside an
official master; a master that restarted knows what its file kept. Another member may know better. All that live are
asked at once (43), and each table that is newer than what is held by then is merged into it. Versions decide, table by
table, never single offsets: the highest offset is not the newest one after an operator's reset. What was committed at
an acting slave has no version: it is joined to the newest table at the end (`domain/tables/acting_commits.py`).

A member that is silent costs `PATIENCE_SECONDS`, then the failover continues; the epoch is written to disk during that.
Without controllers nothing waits for a failover: then it costs `PATIENCE_ALONE_SECONDS`.

Delay offsets (45) are not taken over. They hold for a place of the log that the member has, and its log may differ
there from this one: a message would count as delivered whose copy this log lacks. What was delivered is found in this
log (`consuming/delay_service.py`). What escaped is not, so with enableRemoteEscape that is asked for at the same time
(`escaped_sync.py`). There are no timers (60).
Source: rocketmq-all-5.3.3: BrokerPreOnlineService.java.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

import structlog

from rocketmq_broker.domain.tables.acting_commits import ACTING_BYTES, without
from rocketmq_broker.domain.tables.offsets import SLICE, ConsumerOffsets
from rocketmq_broker.tables.escaped_sync import EscapedSync
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.errors import FormatError
from rocketmq_formats.replica_link import Others
from rocketmq_formats.store.config_files import ActingCommits, ConsumerOffsetsFile, decode_config
from rocketmq_formats.table_copies import newer_offsets_request
from rocketmq_runtime.defects import survive_defects
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError

log = structlog.get_logger(__name__)

PATIENCE_SECONDS: Final = 0.25
"""With the time to decode the last answer, a failover takes at most 0.3 s longer."""
PATIENCE_ALONE_SECONDS: Final = 3.0
MAX_COUNTER: Final = 2**62
"""A larger counter or time is wrong: the versions after it would not fit their 64 bits."""
MAX_BODY: Final = 1536 * 1024 + ACTING_BYTES
"""Bytes that are taken over: offsets of some 75,000 queues and what was committed at an acting slave, or of more queues
alone; 0.08 s to decode. A larger table is left out."""


class ReverseSync:
    """One per broker; `run` is called once for each epoch that it is prepared for."""

    def __init__(
        self,
        *,
        offsets: ConsumerOffsets,
        client: RemotingClient,
        escaped: EscapedSync | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """`escaped`: None without enableRemoteEscape. `patience`: seconds that it may take."""
        self._patience = patience
        self._offsets = offsets
        self._escaped = escaped
        self._held = offsets.version
        """What was copied; commits that come during the copy do not make it newer."""
        self._acting: list[ActingCommits] = []
        """Of the members that answered."""
        self._client = client
        self._loop = asyncio.get_running_loop()
        self._taking = asyncio.Lock()
        """One table after the other, the newer ones last."""
        self._others: Others | None = None
        self._named = asyncio.Event()

    def on_others(self, others: Others) -> None:
        """The sidecar names the members to ask in an epoch."""
        self._others = others
        self._named.set()

    async def run(self, epoch: int) -> None:
        """Returns, in any case, after `patience` at most. Cancelled: nothing is taken over any longer."""
        self._held = self._offsets.version
        self._acting.clear()
        silent = {"the sidecar has not named the other members"}
        try:
            async with asyncio.timeout(self._patience):
                addresses = await self._addresses(epoch)
                silent = set(addresses)
                if not silent:
                    log.info("no other member lives to take newer consumer offsets from", epoch=epoch)
                await self._ask_all(epoch, addresses, silent)
        except TimeoutError:
            log.warning("newer tables may be missing", epoch=epoch, no_answer=sorted(silent))
        for acting in self._acting:
            for _ in self._offsets.take_acting(acting):
                await asyncio.sleep(0)

    async def _addresses(self, epoch: int) -> Iterable[str]:
        while self._others is None or self._others.epoch != epoch:
            self._named.clear()
            await self._named.wait()
        return dict.fromkeys(self._others.addresses)

    async def _ask_all(self, epoch: int, addresses: Iterable[str], silent: set[str]) -> None:
        async with asyncio.TaskGroup() as asking:
            for address in addresses:
                asking.create_task(self._ask_offsets(epoch, address, silent))
                if self._escaped is not None:
                    asking.create_task(self._ask_escaped(self._escaped, address, epoch, silent))

    @staticmethod
    async def _ask_escaped(escaped: EscapedSync, address: str, epoch: int, silent: set[str]) -> None:
        question = f"{address} (what escaped)"
        silent.add(question)
        await escaped.ask(address, epoch)
        silent.discard(question)

    async def _ask_offsets(self, epoch: int, address: str, silent: set[str]) -> None:
        # a defect here must not keep the group without a master
        with survive_defects(log, "unexpected error with a member's consumer offsets", address=address):
            try:
                command = newer_offsets_request(self._held)
                answer = await self._client.call(address, command, timeout=2 * self._patience)
                silent.discard(address)
                if answer.code != ResponseCode.SUCCESS:
                    log.warning("a member does not give its consumer offsets", address=address, reason=answer.remark)
                elif len(answer.body) > MAX_BODY:
                    log.warning("a member's consumer offsets are too many", address=address, bytes=len(answer.body))
                else:
                    await self._take(epoch, address, answer.body)
            except (RemotingError, FormatError, ValueError) as error:
                silent.discard(address)
                log.warning("a member does not give its consumer offsets", address=address, reason=str(error))

    async def _take(self, epoch: int, address: str, body: bytes) -> None:
        async with self._taking:
            await asyncio.sleep(0)  # the patience may have ended while another table was decoded
            theirs = decode_config(ConsumerOffsetsFile, body)
            version, table = theirs.data_version, theirs.offset_table
            if theirs.acting is not None:
                log.info("a member was acting master, its commits are taken over", address=address)
                self._acting.append(theirs.acting)
                table = without(table, theirs.acting)
            if version <= self._held:
                return
            # what is held may be of a later epoch if the group had controllers, or others
            newest = max(epoch, self._held.state_version)
            if version.state_version > newest or max(version.counter, version.timestamp) > MAX_COUNTER:
                log.warning(
                    "a member's consumer offsets have an impossible version", address=address, version=str(version)
                )
                return
            entries = list(table.items())
            for first in range(0, len(entries), SLICE):
                self._offsets.merge(dict(entries[first : first + SLICE]))
                await asyncio.sleep(0)
            self._held = theirs.data_version
            self._offsets.copied(theirs.data_version)
        log.info("newer consumer offsets taken over", address=address, version=str(theirs.data_version))
