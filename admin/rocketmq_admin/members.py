"""The commands on the controllers' quorum. They go to the gRPC port, which can require certificates: the remoting port
has no passwords, and a change of the members affects all groups.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from rocketmq_admin.errors import AdminError, ClusterRefusedError, UnreachableError
from rocketmq_api import channels
from rocketmq_api.channels import AbortedError, ApiError, NoAnswerError
from rocketmq_api.client_tls import ClientTls
from rocketmq_api.controllers import ControllersClient
from rocketmq_api.group_view import MemberView, QuorumView

WAIT: Final = 60
"""Default seconds for a new member to catch up."""
POLL: Final = 0.2


@dataclass(frozen=True)
class Quorum:
    """The controllers to call."""

    addresses: Sequence[str]
    tls: ClientTls | None


async def get_members(quorum: Quorum, timeout: float) -> QuorumView:  # noqa: ASYNC109 - handed on
    """The quorum as its leader sees it, or any member while there is no leader.

    Raises:
        ClusterRefusedError, UnreachableError: no member answers.
    """
    async with _client(quorum, timeout) as client:
        return await client.members()


async def add_member(
    quorum: Quorum,
    timeout: float,  # noqa: ASYNC109 - handed on
    member_id: str,
    address: str,
    *,
    wait: float,
) -> QuorumView:
    """Add a member, and wait up to `wait` seconds until it votes; the quorum then.

    Raises:
        ClusterRefusedError: it was refused, or does not vote yet.
        UnreachableError: no member answers; it may have been added.
    """
    async with _client(quorum, timeout) as client:
        await client.add_member(member_id, address)
        deadline = asyncio.get_running_loop().time() + wait
        while True:
            seen = await client.members()
            member = _find(seen, member_id)
            if member is not None and member.voter:
                return seen
            if asyncio.get_running_loop().time() >= deadline:
                if not wait:
                    return seen
                raise ClusterRefusedError(
                    f"{member_id} was added and does not vote after {wait:g} s: see that it runs with "
                    f"controllerJoin=true and controllerDLegerPeers that name all members, and check again"
                )
            await asyncio.sleep(POLL)


async def remove_member(quorum: Quorum, timeout: float, member_id: str) -> QuorumView:  # noqa: ASYNC109 - handed on
    """Remove a member; the quorum then.

    Raises:
        ClusterRefusedError: it is not a member, or too few others live.
        UnreachableError: no member answers; it may have been removed.
    """
    async with _client(quorum, timeout) as client:
        seen = await client.members()
        if _find(seen, member_id) is None:
            raise ClusterRefusedError(f"{member_id} is not among the members {', '.join(m.id for m in seen.members)}")
        await client.remove_member(member_id)
        return await client.members()


def _find(quorum: QuorumView, member_id: str) -> MemberView | None:
    return next((member for member in quorum.members if member.id == member_id), None)


@asynccontextmanager
async def _client(quorum: Quorum, timeout: float) -> AsyncIterator[ControllersClient]:  # noqa: ASYNC109 - handed on
    try:
        async with ControllersClient(quorum.addresses, tls=quorum.tls, timeout=timeout) as client:
            yield client
    except OSError as error:
        raise ClusterRefusedError(f"TLS: {error}") from error
    except ApiError as error:
        raise _as_admin_error(error) from error


def _as_admin_error(error: channels.ApiError) -> AdminError:
    match error:
        case NoAnswerError():
            return UnreachableError(str(error))
        case AbortedError():
            return ClusterRefusedError(f"{error}: see getControllerMembers, and repeat the command if it is not done")
        case _:
            return ClusterRefusedError(str(error))
