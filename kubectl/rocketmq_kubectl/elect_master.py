"""`elect-master GROUP --force-unclean`: the last way out when every replica in the SyncStateSet is lost for good.

The permission to take a replica outside the set goes with the one request (`allow_unclean`), not into the controllers'
configuration: there is nothing that could be left switched on, and the leader itself refuses while anybody in the set
lives. So the worst that a mistaken call can do is what was confirmed.
"""

from rocketmq_kubectl import confirm, output
from rocketmq_kubectl.errors import NotFoundError, RefusedError, WrongUsageError
from rocketmq_kubectl.look import look
from rocketmq_kubectl.picture import Picture, Replica, Source
from rocketmq_kubectl.run import Report
from rocketmq_kubectl.session import Session

FLAG = "--yes-i-lose-messages"


async def elect_master(
    session: Session, name: str, wanted: str | None, *, force_unclean: bool, confirmed: bool
) -> Report:
    """Elect `wanted` (a pod or a broker id; None: the living replica with the longest log of the newest epoch)."""
    if not force_unclean:
        raise WrongUsageError(
            f"a clean election needs no command, the controllers hold it themselves; to change the master:"
            f" kubectl rocketmq switchover {name}; to give up messages: --force-unclean"
        )
    (before,) = await look(session, [await session.group_body(name)])
    if before.source is not Source.CONTROLLERS:
        assert before.problem is not None
        raise before.problem
    target = _candidate(before, wanted)
    if not confirmed:
        confirm.typed(name, _consequences(before, target), flag=FLAG)
    async with session.controllers(before.group) as client:
        view, elected = await session.ask(
            client.elect_master(before.group.broker_name, target.broker_id, allow_unclean=True)
        )
    text = (
        f"{target.pod or target.address} (brokerId {view.master_broker_id}) is master of {name} in epoch"
        f" {view.master_epoch}; the others will cut their logs to its, as they come back"
    )
    return Report(
        f"{text}\n",
        {
            "namespace": before.group.namespace,
            "name": name,
            "changed": elected,
            "master": target.pod,
            "masterBrokerId": view.master_broker_id,
            "masterEpoch": view.master_epoch,
        },
    )


def _candidate(before: Picture, wanted: str | None) -> Replica:
    """Who is to be master.

    Raises:
        RefusedError: somebody in the SyncStateSet lives, or nobody at all.
        NotFoundError: no such replica.
    """
    name = before.group.name
    if before.master_broker_id is None and not before.in_set:
        raise RefusedError(f"{name} never had a master: its brokers elect the first one themselves, once they run")
    living = [one for one in before.in_set if one.alive is not False]
    if living:
        who = ", ".join(one.pod or one.address for one in living)
        raise RefusedError(
            f"{who} of the SyncStateSet lives, or may live, and has every acknowledged message: no unclean election is"
            f" needed. If it leads badly: kubectl rocketmq switchover {name}"
        )
    candidates = [one for one in before.replicas if one.alive and one.broker_id is not None]
    if not candidates:
        raise RefusedError(f"no replica of {name} is alive: bring a pod back first (kubectl rocketmq status {name})")
    if wanted is None:
        return max(candidates, key=lambda one: (one.epoch or 0, one.max_offset or 0))
    chosen = before.find(wanted)
    if chosen is None or chosen not in candidates:
        there = ", ".join(f"{one.pod} ({one.broker_id})" for one in candidates)
        raise NotFoundError(f"{name} has no living replica {wanted}: there are {there}")
    return chosen


def _consequences(before: Picture, target: Replica) -> str:
    lost = ", ".join(f"{one.pod or one.address} (brokerId {one.broker_id})" for one in before.in_set)
    return (
        f"No replica in the SyncStateSet of {before.group.name} is alive: {lost}.\n"
        f"{target.pod} (brokerId {target.broker_id}) would become master with its log up to offset"
        f" {output.cell(target.max_offset)}. Acknowledged messages that only the dead have are LOST, also when they\n"
        f"come back: they cut their logs. If one of them can be brought back, do that instead."
    )
