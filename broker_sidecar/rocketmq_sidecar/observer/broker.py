"""Requests to Java brokers: the one beside this sidecar, and in a hand-over those of its group. Used by the observer.

Every call ends within its time-out. Codes: 28 runtime info, 1007 epoch cache, 907 HA status, 26 and 25 configuration.
"""

import asyncio
from collections.abc import Mapping

from rocketmq_formats import properties
from rocketmq_formats.codes import RequestCode, ResponseCode
from rocketmq_formats.errors import FormatError
from rocketmq_formats.json.bodies import decode_body
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_formats.remoting.controller import EpochEntryCache
from rocketmq_formats.remoting.ha_info import ExchangeHAInfoHeader, HARuntimeInfo
from rocketmq_formats.remoting.headers import decode_header
from rocketmq_formats.remoting.nameserver import KVTable
from rocketmq_runtime.remoting.client import ConnectError, RemotingClient, RemotingError
from rocketmq_sidecar.domain.observing.status import BrokerStatus, read_broker

TIMEOUT = 5.0
"""Seconds that a broker may take to answer: usually milliseconds, but seconds just after its start on a busy
machine."""


class BrokerError(Exception):
    """No usable answer; the text names the address and the reason."""


class BrokerGoneError(BrokerError):
    """Nothing listens there: no process, or one that still recovers its store."""


class BrokerRefusesError(BrokerError):
    """It refuses the request, or its answer cannot be read."""


class BrokerCalls:
    """Calls to any broker over one connection each."""

    def __init__(self) -> None:
        self._client = RemotingClient(connect_timeout=TIMEOUT)

    async def status(self, address: str, seconds: float = TIMEOUT) -> BrokerStatus:
        """The broker's status.

        Raises:
            BrokerError: no answer, or one that cannot be read; BrokerGoneError: nothing listens.
        """
        codes = (
            RequestCode.GET_BROKER_RUNTIME_INFO,
            RequestCode.GET_BROKER_EPOCH_CACHE,
            RequestCode.GET_BROKER_HA_STATUS,
        )
        runtime, cache, status = await asyncio.gather(
            *(self._call(address, request(code), seconds) for code in codes), return_exceptions=True
        )
        if isinstance(runtime, BaseException):
            raise runtime
        if isinstance(cache, BaseException):
            raise cache
        if isinstance(status, BaseException) and not isinstance(status, BrokerRefusesError):
            raise status
        try:
            return read_broker(
                decode_body(KVTable, runtime.body).table,
                decode_body(EpochEntryCache, cache.body),
                # Refused while a former master is not connected to its master yet (a null pointer in 5.3.3).
                HARuntimeInfo() if isinstance(status, BaseException) else decode_body(HARuntimeInfo, status.body),
            )
        except FormatError as error:
            raise BrokerRefusesError(f"the broker at {address} sent an unreadable answer: {error}") from error

    async def end(self, address: str, seconds: float = TIMEOUT) -> int:
        """Where its log ends, by the cheapest request.

        Raises:
            BrokerError: as `status`.
        """
        answer = await self._call(address, request(RequestCode.GET_BROKER_EPOCH_CACHE), seconds)
        try:
            return decode_body(EpochEntryCache, answer.body).max_offset
        except FormatError as error:
            raise BrokerRefusesError(f"the broker at {address} sent an unreadable answer: {error}") from error

    async def configuration(self, address: str, seconds: float = TIMEOUT) -> Mapping[str, str]:
        """All its keys.

        Raises:
            BrokerError: as `status`.
        """
        answer = await self._call(address, request(RequestCode.GET_BROKER_CONFIG), seconds)
        try:
            return properties.parse(answer.body)
        except FormatError as error:
            raise BrokerError(f"the configuration of the broker at {address} cannot be read: {error}") from error

    async def configure(self, address: str, changes: Mapping[str, str], seconds: float = TIMEOUT) -> None:
        """Change these keys, at once.

        Raises:
            BrokerError: refused, or the result is not known.
        """
        await self._call(address, request(RequestCode.UPDATE_BROKER_CONFIG, body=properties.dump(changes)), seconds)

    async def ha_address(self, address: str, seconds: float = TIMEOUT) -> str | None:
        """The HA address of this broker for its slaves; None if it does not act as master.

        Raises:
            BrokerError: as `status`.
        """
        answer = await self._call(
            address, request(RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoHeader()), seconds
        )
        try:
            return decode_header(ExchangeHAInfoHeader, answer.ext_fields or {}).master_ha_address or None
        except FormatError as error:
            raise BrokerError(f"the broker at {address} sent an unreadable answer: {error}") from error

    async def set_master(self, address: str, *, ha_address: str, master_address: str) -> None:
        """Set a slave's master address, as a name server would.

        Raises:
            BrokerError: as `configure`.
        """
        header = ExchangeHAInfoHeader(
            master_ha_address=ha_address, master_address=master_address, master_flush_offset=0
        )
        await self._call(address, request(RequestCode.EXCHANGE_BROKER_HA_INFO, header), TIMEOUT)

    async def close(self) -> None:
        await self._client.close()

    async def _call(self, address: str, command: RemotingCommand, seconds: float) -> RemotingCommand:
        try:
            answer = await self._client.call(address, command, timeout=seconds)
        except ConnectError as error:
            if isinstance(error.__cause__, ConnectionRefusedError):
                raise BrokerGoneError(f"the broker does not listen: {error}") from error
            raise BrokerError(f"the broker does not answer: {error}") from error
        except RemotingError as error:
            raise BrokerError(f"the broker does not answer: {error}") from error
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerRefusesError(
                f"the broker at {address} refuses request {command.code}: {answer.remark or ''} (code {answer.code})"
            )
        return answer
