"""What the tests of hand-overs and fences share: a group whose leases run, controllers that elect nobody."""

from rocketmq_formats.remoting.codes import ResponseCode
from rocketmq_formats.remoting.command import RemotingCommand, request, response
from rocketmq_formats.remoting.controller import ElectMasterRequestHeader, ElectMasterResponseHeader
from rocketmq_sidecar.domain.actions import Ask
from tests.sidecar import world as worlds
from tests.sidecar.world import World
from tests.sidecar.world_node import Node


def settled(nodes: int = 3, *, relaxed: bool = False) -> World:
    return worlds.settled(nodes, relaxed=relaxed, seconds=1)


def is_designation(ask: Ask) -> bool:
    return isinstance(ask.header, ElectMasterRequestHeader) and ask.header.designate_elect is True


def refuse_designations(world: World) -> None:
    """The controllers elect nobody who is named."""
    answer = world.controllers.answer

    def answered(node: Node, ask: Ask, now: float) -> RemotingCommand | None:
        if not is_designation(ask):
            return answer(node, ask, now)
        code = ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        return response(request(ask.code, ask.header), code, "not this one", ElectMasterResponseHeader())

    world.controllers.answer = answered  # type: ignore[method-assign]
