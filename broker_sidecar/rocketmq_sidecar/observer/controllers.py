"""Requests to the controllers about one group (1006), and for an election by its master (1002).

Only the leading controller answers them. So all are asked at once until one has answered; from then on that one is
asked first. These connections carry no heartbeats, so the broker's liveness does not depend on them.
"""

import asyncio
from collections.abc import Sequence

import msgspec

from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.errors import FormatError
from rocketmq_formats.json.bodies import decode_body, encode_body
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.controller import (
    BrokerReplicasInfo,
    ElectMasterRequestHeader,
    ElectMasterResponseHeader,
)
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError
from rocketmq_sidecar.domain.observing.status import GroupStatus, read_group

TIMEOUT = 1.0
"""Seconds for one member's answer."""


class ControllersSilentError(Exception):
    """No leading controller answered in time; the text has the last answer."""


class ElectionRefusedError(Exception):
    """The controllers refused the election; the text is theirs."""


class Elected(msgspec.Struct, frozen=True):
    """How an election ended."""

    master_id: int
    master_epoch: int


class ControllerCalls:
    """All controllers of one group."""

    def __init__(self, addresses: Sequence[str], *, cluster_name: str, broker_name: str) -> None:
        self._addresses = tuple(addresses)
        self._cluster_name = cluster_name
        self._broker_name = broker_name
        self._client = RemotingClient(connect_timeout=TIMEOUT)
        self._leader: str | None = None

    @property
    def found(self) -> bool:
        """Whether a leading controller answered last."""
        return self._leader is not None

    async def group(self) -> GroupStatus | None:
        """The group's present state; None: the controllers do not know it.

        Raises:
            ControllersSilentError: no leading controller answers.
        """
        answer = await self._decided(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, encode_body([self._broker_name]))
        try:
            info = decode_body(BrokerReplicasInfo, answer.body).replicas_info_table.get(self._broker_name)
        except FormatError as error:
            raise ControllersSilentError(f"a controller sent an unreadable answer: {error}") from error
        return None if info is None else read_group(info)

    async def elect(self, broker_id: int) -> Elected:
        """Have `broker_id` made master.

        Raises:
            ElectionRefusedError: they refused.
            ControllersSilentError: the result is not known.
        """
        if self._leader is None:
            await self.group()
        leader = self._leader
        assert leader is not None, "group() would have raised"
        header = ElectMasterRequestHeader(
            broker_name=self._broker_name, cluster_name=self._cluster_name, broker_id=broker_id, designate_elect=True
        )
        try:
            answer = await self._client.call(
                leader, request(RequestCode.CONTROLLER_ELECT_MASTER, header), timeout=TIMEOUT
            )
        except RemotingError as error:
            self._leader = None
            raise ControllersSilentError(str(error)) from error
        if answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self._leader = None
            raise ElectionRefusedError("the leading controller has changed just now: try again")
        if answer.code not in {ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST}:
            raise ElectionRefusedError(f"{answer.remark or 'no reason given'} (code {answer.code})")
        try:
            elected = decode_header(ElectMasterResponseHeader, answer.ext_fields or {})
        except FormatError as error:
            raise ControllersSilentError(f"{leader} sent an unreadable answer: {error}") from error
        return Elected(elected.master_broker_id or broker_id, elected.master_epoch or 0)

    async def close(self) -> None:
        await self._client.close()

    async def _decided(self, code: RequestCode, body: bytes) -> RemotingCommand:
        """The leading controller's answer: the last leader is asked first, then all of them."""
        if self._leader is not None:
            try:
                answer = await self._client.call(self._leader, request(code, body=body), timeout=TIMEOUT)
            except RemotingError:
                pass
            else:
                if answer.code == ResponseCode.SUCCESS:
                    return answer
            self._leader = None
        calls = [self._client.call(address, request(code, body=body), timeout=TIMEOUT) for address in self._addresses]
        reason = "no controller answers"
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for address, found in zip(self._addresses, answers, strict=True):
            if isinstance(found, RemotingCommand):
                if found.code == ResponseCode.SUCCESS:
                    self._leader = address
                    return found
                reason = f"none of the controllers leads ({address}: {found.remark or f'code {found.code}'})"
            elif not isinstance(found, RemotingError):
                raise found
        raise ControllersSilentError(reason)
