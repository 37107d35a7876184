"""A client of this release and a process of an earlier one: what came later is missing there."""

from typing import Any

import grpc
import pytest
from grpc import aio

from rocketmq_api import sidecar_admin_pb2 as pb
from rocketmq_api.channels import RefusedError
from rocketmq_api.log_readers import LogReaderClient
from rocketmq_api.replica_view import ReplicaRole
from rocketmq_api.sidecars import SidecarClient


async def get_replica(_request: Any, _context: Any) -> Any:
    """No field but those of a first release, and a role that this one does not know."""
    return pb.GetReplicaResponse(replica=pb.Replica(broker_name="a", role=99))


async def test_rpcs_and_fields_that_came_later() -> None:
    server = aio.server()
    handler = grpc.unary_unary_rpc_method_handler(
        get_replica, pb.GetReplicaRequest.FromString, pb.GetReplicaResponse.SerializeToString
    )
    service = pb.DESCRIPTOR.services_by_name["SidecarAdmin"].full_name
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"GetReplica": handler}),))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    try:
        async with SidecarClient(address) as sidecar, LogReaderClient(address) as reader:
            view = await sidecar.get_replica()
            assert (view.broker_name, view.role, view.remark) == ("a", ReplicaRole.UNKNOWN, "")
            for call in (sidecar.set_fenced(True, "why"), sidecar.hand_over(), reader.get_log()):
                with pytest.raises(RefusedError, match="does not know this call") as caught:
                    await call
                assert "upgrade it" in caught.value.reason
    finally:
        await server.stop(None)
