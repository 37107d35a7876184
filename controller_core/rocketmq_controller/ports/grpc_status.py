"""Refusals in gRPC: a status, and RocketMQ's code in the trailing metadata. Called by grpc_admin."""

from collections.abc import Mapping, Sequence
from typing import Never, TypeVar

import grpc
import msgspec
from grpc import aio

from rocketmq_controller.domain.model import FIRST_BROKER_ID
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.controller import Name

MAX_IDS = 1000
"""Ids that one request may name."""

CODE_KEY, LEADER_KEY, LEADER_GRPC_KEY = "rocketmq-code", "rocketmq-leader", "rocketmq-leader-grpc"

STATUS_OF: Mapping[ResponseCode, grpc.StatusCode] = {
    # Unknown whether committed, or superseded by another change. Only the caller can decide whether to repeat it.
    ResponseCode.SYSTEM_ERROR: grpc.StatusCode.ABORTED,
    ResponseCode.SYSTEM_BUSY: grpc.StatusCode.UNAVAILABLE,
    ResponseCode.CONTROLLER_NOT_LEADER: grpc.StatusCode.FAILED_PRECONDITION,
    ResponseCode.CONTROLLER_INVALID_REQUEST: grpc.StatusCode.INVALID_ARGUMENT,
    ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST: grpc.StatusCode.NOT_FOUND,
    ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED: grpc.StatusCode.NOT_FOUND,
    ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE: grpc.StatusCode.FAILED_PRECONDITION,
    ResponseCode.CONTROLLER_ELECT_MASTER_FAILED: grpc.StatusCode.FAILED_PRECONDITION,
    ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA: grpc.StatusCode.FAILED_PRECONDITION,
}
"""The gRPC status of a refusal; a code that is missing here cannot occur in these rpcs, so INTERNAL."""

Metadata = tuple[tuple[str, str], ...]
RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")


async def refuse(
    context: aio.ServicerContext[RequestT, ResponseT],
    code: ResponseCode,
    remark: str | None,
    metadata: Metadata = (),
    status: grpc.StatusCode | None = None,
) -> Never:
    """End the rpc with what the controller answered; `status` where the code alone is ambiguous which."""
    status = status or STATUS_OF.get(code, grpc.StatusCode.INTERNAL)
    await context.abort(status, remark or code.name, ((CODE_KEY, str(int(code))), *metadata))


async def require_name(context: aio.ServicerContext[RequestT, ResponseT], field: str, name: str) -> None:
    """Refuse names that the remoting protocol would refuse."""
    try:
        msgspec.convert(name, Name)
    except msgspec.ValidationError as error:
        await invalid(context, f"{field}: {error}")


async def require_ids(context: aio.ServicerContext[RequestT, ResponseT], ids: Sequence[int]) -> None:
    """Refuse what cannot be ids of replicas, or are too many."""
    if len(ids) > MAX_IDS:
        await invalid(context, f"broker_ids: {len(ids)} ids are more than {MAX_IDS}")
    bad = next((broker_id for broker_id in ids if broker_id < FIRST_BROKER_ID), None)
    if bad is not None:
        await invalid(context, f"broker_id: {bad} is no id, they begin with {FIRST_BROKER_ID}")


async def invalid(context: aio.ServicerContext[RequestT, ResponseT], why: str) -> Never:
    """End the rpc: the request itself is wrong."""
    await context.abort(grpc.StatusCode.INVALID_ARGUMENT, why)
