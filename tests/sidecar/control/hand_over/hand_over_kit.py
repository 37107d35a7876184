"""What the tests of hand-overs and fences share: a group whose leases run, controllers that refuse to elect."""

from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, request, response
from rocketmq_formats.remoting.controller import ElectMasterRequestHeader, ElectMasterResponseHeader
from rocketmq_sidecar.domain.actions import Request
from tests.sidecar.world import world as worlds
from tests.sidecar.world.node import Node
from tests.sidecar.world.world import World


def settled(nodes: int = 3, *, relaxed: bool = False) -> World:
    return worlds.settled(nodes, relaxed=relaxed, seconds=1)


def is_designation(ask: Request) -> bool:
    return isinstance(ask.header, ElectMasterRequestHeader) and ask.header.designate_elect is True


def refuse_designations(world: World) -> None:
    """The controllers refuse designated elections."""
    answer = world.controllers.answer

    def answered(node: Node, ask: Request, now: float) -> RemotingCommand | None:
        if not is_designation(ask):
            return answer(node, ask, now)
        code = ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        return response(request(ask.code, ask.header), code, "not this one", ElectMasterResponseHeader())

    world.controllers.answer = answered  # type: ignore[method-assign]
