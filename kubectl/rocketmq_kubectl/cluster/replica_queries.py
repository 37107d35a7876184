"""Asks the sidecars of a group, all at the same time, through port-forwards.

Called by the verbs that show what only a replica itself knows: `epochs` and `status`.
"""

from rocketmq_api.replica_view import ReplicaView
from rocketmq_kubectl.cluster.session import Session, gather_results
from rocketmq_kubectl.errors import PluginError

Answers = dict[str, ReplicaView | PluginError]
"""By pod; an error says why its sidecar did not answer."""


async def query_replicas(session: Session, name: str) -> Answers:
    """The answers of all pods of the group that run, in the order of their ordinals.

    Raises:
        PluginError: the pods cannot be listed.
    """
    pods = await session.pods(session.namespace, "broker", name)
    running = [pod.name for pod in pods if pod.reachable]
    answers = await gather_results([_get_replica(session, pod) for pod in running])
    return dict(zip(running, answers, strict=True))


async def _get_replica(session: Session, pod: str) -> ReplicaView:
    async with session.sidecar(session.namespace, pod) as client:
        return await session.call(client.get_replica())
