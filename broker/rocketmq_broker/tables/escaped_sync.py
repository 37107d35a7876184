"""Asks the other members what of the delayed messages is at other groups (45), which no log tells.

An acting slave asks before it begins, a new master before it serves (`reverse_sync.py`). Facts are added to those known
here; they need no version (`domain/consuming/escaped.py`). An official member's answer has none.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

import structlog

from rocketmq_broker.tables.consumer_tables import DelayOffsets
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.errors import FormatError
from rocketmq_formats.store.config_files import DelayOffsetWrapper, decode_config, decode_escaped
from rocketmq_formats.table_copies import escaped_request
from rocketmq_runtime.defects import survive_defects
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError

log = structlog.get_logger(__name__)

PATIENCE_SECONDS: Final = 1.0
"""Of an acting slave."""
MAX_BODY: Final = 1024 * 1024


class EscapedSync:
    def __init__(self, delays: DelayOffsets, client: RemotingClient) -> None:
        self._delays = delays
        self._client = client

    async def ask_all(self, addresses: Iterable[str]) -> None:
        """Returns, in any case, after `PATIENCE_SECONDS` at most."""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as asking:
                for address in addresses:
                    asking.create_task(self.ask(address))
        except TimeoutError:
            log.warning("delayed messages that escaped from another member may be sent again")

    async def ask(self, address: str, epoch: int = 0) -> None:
        """Ask one member, as the master that was elected for `epoch`; 0: as an acting slave."""
        # a defect here must not keep the group without a master
        with survive_defects(log, "unexpected error with what escaped from a member", address=address):
            try:
                answer = await self._client.call(address, escaped_request(epoch), timeout=2 * PATIENCE_SECONDS)
                if answer.code != ResponseCode.SUCCESS or len(answer.body) > MAX_BODY:
                    log.warning("a member does not tell what escaped", address=address, reason=answer.remark)
                    return
                self._delays.join(decode_escaped(decode_config(DelayOffsetWrapper, answer.body).escaped or {}))
            except (RemotingError, FormatError, ValueError) as error:
                log.warning("a member does not tell what escaped", address=address, reason=str(error))
