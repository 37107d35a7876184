"""Requests to the controllers about one group (1006), and for an election by its master (1002).

Only the leading controller answers those. So all are asked at once until one has answered; from then on that one is
asked first. These connections carry no heartbeats, so the broker's liveness does not depend on them.
"""

import asyncio
from collections.abc import Callable, Sequence

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
from rocketmq_sidecar.domain.controllers import answers
from rocketmq_sidecar.domain.controllers.leader import group_name, other_controllers
from rocketmq_sidecar.domain.observing.status import GroupStatus, read_group

TIMEOUT = 1.0
"""Seconds for one member's answer."""


class ControllersSilentError(Exception):
    """No leading controller answered in time; the text has the last answer."""


class OtherControllersError(ControllersSilentError):
    """Controllers of another group answer; the text has both groups."""


class ElectionRefusedError(Exception):
    """The controllers refused the election; the text is theirs."""


class Elected(msgspec.Struct, frozen=True):
    """How an election ended."""

    master_id: int
    master_epoch: int


class ControllerCalls:
    """All controllers of one group."""

    def __init__(
        self, addresses: Sequence[str], *, cluster_name: str, broker_name: str, kept: Callable[[], str | None]
    ) -> None:
        """`kept`: the group of controllers at which the broker has registered, if it is known."""
        self.name: str | None = None
        """The group of the leading controller that answered last, if it named itself."""
        self._kept = kept
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
            OtherControllersError: one of another group does.
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
            answer, _ = await self._ask(leader, request(RequestCode.CONTROLLER_ELECT_MASTER, header))
        except OtherControllersError as error:
            self._leader = None
            raise ElectionRefusedError(str(error)) from error  # nothing was requested
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

    async def ask(self, address: str, asked: RemotingCommand) -> RemotingCommand:
        """The answer of this controller.

        Raises:
            RemotingError: it does not answer.
            ControllersSilentError: its answer about its group cannot be read.
            OtherControllersError: it is of another group, and was not asked.
        """
        answer, _ = await self._ask(address, asked)
        return answer

    async def close(self) -> None:
        await self._client.close()

    async def _decided(self, code: RequestCode, body: bytes) -> RemotingCommand:
        """The leading controller's answer: the last leader is asked first, then all of them."""
        if self._leader is not None:
            try:
                answer, name = await self._ask(self._leader, request(code, body=body))
            except (RemotingError, ControllersSilentError):
                pass
            else:
                if answer.code == ResponseCode.SUCCESS:
                    self.name = name
                    return answer
            self._leader = None
        calls = [self._ask(address, request(code, body=body)) for address in self._addresses]
        reason, foreign = "no controller answers", None
        results = await asyncio.gather(*calls, return_exceptions=True)
        for address, found in zip(self._addresses, results, strict=True):
            if isinstance(found, tuple):
                answer, name = found
                if answer.code == ResponseCode.SUCCESS:
                    self._leader, self.name = address, name
                    return answer
                reason = f"none of the controllers leads ({address}: {answer.remark or f'code {answer.code}'})"
            elif isinstance(found, OtherControllersError):
                foreign = found
            elif isinstance(found, ControllersSilentError):
                reason = str(found)
            elif not isinstance(found, RemotingError):
                raise found
        if foreign is not None:
            raise foreign
        raise ControllersSilentError(reason)

    async def _ask(self, address: str, asked: RemotingCommand) -> tuple[RemotingCommand, str | None]:
        """The answer of a controller that is of the broker's group, and the name of that group. Each time, because
        another process may have its address by now.

        Raises:
            RemotingError: no answer.
            OtherControllersError: it is of another group.
        """
        said = await self._client.call(address, request(RequestCode.CONTROLLER_GET_METADATA_INFO), timeout=TIMEOUT)
        try:
            quorum = answers.quorum(said)
        except FormatError as error:
            raise ControllersSilentError(f"{address} sent an unreadable answer: {error}") from error
        foreign = other_controllers(self._kept(), address, quorum)
        if foreign is not None:
            raise OtherControllersError(foreign)
        return await self._client.call(address, asked, timeout=TIMEOUT), group_name(quorum)
