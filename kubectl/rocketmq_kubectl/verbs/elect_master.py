"""`elect-master GROUP --force-unclean`: the last resort when every replica in the SyncStateSet is lost.

The permission for a replica outside the set is part of this request (`allow_unclean`), not of the controllers'
configuration, so it cannot be left switched on. The leader refuses it while a replica in the set is alive.
"""

from rocketmq_kubectl import output
from rocketmq_kubectl.cluster.group_queries import query_groups
from rocketmq_kubectl.cluster.picture import Picture, Replica, Source
from rocketmq_kubectl.cluster.session import Session
from rocketmq_kubectl.errors import CommandRefusedError, NotFoundError, WrongUsageError
from rocketmq_kubectl.run import Report
from rocketmq_kubectl.verbs import change

FLAG = "--yes-i-lose-messages"


async def elect_master(
    session: Session, name: str, wanted: str | None, *, force_unclean: bool, confirmed: bool
) -> Report:
    """Elect `wanted` (a pod or a broker id; None: the living replica with the longest log of the newest epoch)."""
    if not force_unclean:
        raise WrongUsageError(
            f"a clean election needs no command, the controllers do it; to change the master:"
            f" kubectl rocketmq switchover {name}; to lose messages: --force-unclean"
        )
    (before,) = await query_groups(session, [await session.group_body(name)])
    if before.source is not Source.CONTROLLERS:
        assert before.problem is not None
        raise before.problem
    target = _candidate(before, wanted)
    if not confirmed:
        change.require_typed(name, _consequences(before, target), flag=FLAG)
    async with session.controllers(before.group) as client:
        view, elected = await session.call(
            client.elect_master(before.group.broker_name, target.broker_id, allow_unclean=True)
        )
    text = (
        f"{target.pod or target.address} (brokerId {view.master_broker_id}) is master of {name} in epoch"
        f" {view.master_epoch}; the others will truncate their logs to its log when they return"
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
    """The replica to elect.

    Raises:
        CommandRefusedError: a member of the SyncStateSet is alive, or no replica at all.
        NotFoundError: no such replica.
    """
    name = before.group.name
    if before.master_broker_id is None and not before.in_set:
        raise CommandRefusedError(
            f"{name} never had a master: its brokers elect the first one themselves once they run"
        )
    living = [replica for replica in before.in_set if replica.alive is not False]
    if living and (wanted is None or not _waiting(before, living)):
        who = ", ".join(replica.pod or replica.address for replica in living)
        raise CommandRefusedError(
            f"{who} of the SyncStateSet is or may be alive and has every acknowledged message: no unclean election is"
            f" needed. To replace a bad master: kubectl rocketmq switchover {name}. If no master is elected after a"
            " power cut (see the leading controller's log), name the replica to elect"
        )
    candidates = living or [replica for replica in before.replicas if replica.alive and replica.broker_id is not None]
    if not candidates:
        raise CommandRefusedError(
            f"no replica of {name} is alive: bring a pod back first (kubectl rocketmq status {name})"
        )
    if wanted is None:
        return max(candidates, key=lambda candidate: (candidate.epoch or 0, candidate.max_offset or 0))
    chosen = before.find(wanted)
    if chosen is None or chosen not in candidates:
        there = ", ".join(f"{candidate.pod} ({candidate.broker_id})" for candidate in candidates)
        raise NotFoundError(f"{name} has no living replica {wanted}: there are {there}")
    return chosen


def _waiting(before: Picture, living: list[Replica]) -> bool:
    """Whether there is no master although members of the SyncStateSet are certainly alive: after a power cut the
    controllers wait for the others. If one of them kept everything, they elect that one."""
    master = next((replica for replica in before.replicas if replica.broker_id == before.master_broker_id), None)
    leads = master is not None and master.alive is not False
    return not leads and all(replica.alive and replica.broker_id is not None for replica in living)


def _consequences(before: Picture, target: Replica) -> str:
    away = [replica for replica in before.in_set if not replica.alive]
    lost = ", ".join(f"{replica.pod or replica.address} (brokerId {replica.broker_id})" for replica in away)
    who = "No replica" if len(away) == len(before.in_set) else "Not every replica"
    return (
        f"{who} in the SyncStateSet of {before.group.name} is alive: {lost}.\n"
        f"{target.pod} (brokerId {target.broker_id}) would become master with its log up to offset"
        f" {output.cell(target.max_offset)}. Acknowledged messages that only dead replicas have are LOST, even if\n"
        f"they return: they truncate their logs. If one of them can be restored, do that instead."
    )
