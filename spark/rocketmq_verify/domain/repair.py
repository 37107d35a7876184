"""The steps that would repair what was found, as text and commands. For `--plan`; nothing here is ever executed.

Rules that every plan keeps: never more than one replica at a time, and the next only after the group is verified again;
nothing is rebuilt before the master is a replica without findings, since a rebuild copies the master's log; never a
replica that has the only right copy of something: that would be lost. So where every replica has a fault, each in
another place, nothing is rebuilt: the right bytes are copied by hand.
"""

import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.model import ReplicaName

NOTHING_TO_DO: Final = "nothing to repair"
MOST_COMMANDS: Final = 64
"""Of one step."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do, in order."""

    text: str
    commands: tuple[str, ...] = ()
    """To be typed, in order; empty where people only look."""


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about one replica, or about all."""

    replica: ReplicaName | None
    why: str
    steps: tuple[Step, ...]


def repairs(
    findings: Iterable[Finding],
    *,
    replicas: Sequence[ReplicaName],
    masters: Iterable[ReplicaName] = (),
    group: str | None = None,
    on_kubernetes: bool = False,
    stores: Mapping[ReplicaName, str] | None = None,
) -> tuple[Repair, ...]:
    """One after the other, the second only when the first is done and verified.

    Args:
        replicas: all of the group that were read.
        masters: the current masters, as far as known.
        group: the BrokerGroup; a replica's name is its pod's then.
        stores: storePathRootDir of each replica where it is known.
    """
    found = list(findings)
    at = _Stores(stores or {})
    leads = frozenset(masters)
    damage = [finding for finding in found if finding.kind.traits.advice is None]
    bad: dict[ReplicaName, list[Finding]] = {}
    for finding in damage:
        for replica in finding.replicas:
            bad.setdefault(replica, []).append(finding)
    whole = [replica for replica in replicas if replica not in bad]
    hopeless = [finding for finding in damage if not _right(finding, replicas)]
    scattered = [finding for finding in damage if not _right(finding, whole)]
    plans = []
    if hopeless:
        plans.append(_keep(hopeless, group, at, on_kubernetes=on_kubernetes))
    elif scattered:
        plans.append(_mend(damage, bad, group, at, on_kubernetes=on_kubernetes))
    elif damage:
        # first the one that has most of what the others lack
        heirs = sorted(
            whole, key=lambda replica: (-sum(replica in _right(each, whole) for each in damage), replica not in leads)
        )
        if not leads - bad.keys():
            plans.append(_hand_over(heirs, sorted(leads & bad.keys()), group, on_kubernetes=on_kubernetes))
        plans += [_rebuild(replica, bad[replica], group, at, on_kubernetes=on_kubernetes) for replica in sorted(bad)]
    plans += [_other(finding, advice) for finding in found if (advice := finding.kind.traits.advice) is not None]
    return tuple(plans)


class _Stores:
    """Paths for commands."""

    def __init__(self, known: Mapping[ReplicaName, str]) -> None:
        self._known = known

    def path(self, replica: ReplicaName, inside: str = "") -> str:
        root = self._known.get(replica)
        return f"<store of {replica}>{inside}" if root is None else shlex.quote(f"{root}{inside}")


def _right(finding: Finding, among: Sequence[ReplicaName]) -> list[ReplicaName]:
    """Those of these replicas that have a right copy, as far as known."""
    if finding.copies:
        right = {copy.replica for copy in finding.copies if copy.right}
        return [replica for replica in among if replica in right]
    if finding.kind is Kind.BAD_STRUCTURE:
        return []  # it is equal in all that have it
    return [replica for replica in among if replica not in finding.replicas]


def _keep(findings: Sequence[Finding], group: str | None, stores: _Stores, *, on_kubernetes: bool) -> Repair:
    places = ", ".join(str(finding.first_difference or finding.extent.start) for finding in findings[:8])
    steps = [
        Step(
            text="No copy is known to be right. Rebuild nothing and let nothing expire: each copy may be the only one "
            "that has the message. Raise fileReservedTime on all replicas, or stop the group if you can."
        ),
        _aside(findings[0].replicas, stores, on_kubernetes=on_kubernetes),
        Step(
            text=f"Examine the bytes at {places}: the report has them in hex. The producer's logs (UNIQ_KEY is the "
            "producer's msgId) or the consumers may show which copy is right.",
            commands=("mqadmin queryMsgByOffset -b <broker> -t <topic> -i <queueId> -o <queueOffset>",),
        ),
        Step(
            text="Decide which copy stays, make its replica the master, then rebuild the others one by one.",
            commands=_switch("<pod>", group, on_kubernetes=on_kubernetes),
        ),
    ]
    return Repair(replica=None, why=_why(findings), steps=tuple(steps))


def _mend(
    findings: Sequence[Finding],
    bad: Collection[ReplicaName],
    group: str | None,
    stores: _Stores,
    *,
    on_kubernetes: bool,
) -> Repair:
    """Each right copy is in a replica that has something else wrong."""
    pods = on_kubernetes and group
    copies: list[str] = []
    for finding in findings:
        source = next((copy.replica for copy in finding.copies if copy.right), None)
        if source is None or finding.segment is None or finding.record is None or len(copies) >= MOST_COMMANDS:
            continue
        first, file = finding.extent.start - finding.segment, f"/commitlog/{finding.segment:020d}"
        copies += [
            f"dd if={stores.path(source, file)} of={stores.path(target, file)} bs=64K "
            f"iflag=skip_bytes,count_bytes oflag=seek_bytes skip={first} seek={first} "
            f"count={finding.extent.length} conv=notrunc"
            for target in finding.replicas
        ]
    steps = [
        Step(
            text="Every replica that has a right copy of something has something else wrong. Rebuild nothing: a "
            "rebuild copies the master's faults and loses what only the rebuilt replica has right. Let nothing "
            "expire: raise fileReservedTime on all replicas."
        ),
        _aside(sorted(bad), stores, on_kubernetes=on_kubernetes),
        Step(
            text="Stop brokers and sidecars of all replicas. Overwrite the wrong bytes with the right ones from the "
            "backup copies.",
            commands=tuple(copies),
        ),
        Step(
            text="Start them and verify everything again before you change anything else.",
            commands=(f"kubectl rocketmq verify {group} --now",) if pods else ("rocketmq-verify --full --replica ...",),
        ),
    ]
    return Repair(replica=None, why=_why(findings), steps=tuple(steps))


def _hand_over(
    heirs: Sequence[ReplicaName], bad: Sequence[ReplicaName], group: str | None, *, on_kubernetes: bool
) -> Repair:
    """Comes before every rebuild, which copies the master's log."""
    whole = " or ".join(heirs)
    why = f"{' and '.join(bad)} is master and damaged" if bad else "a rebuild copies the master's log"
    step = Step(
        text=f"Make {whole} the master, in which this report found no fault, before you rebuild anything.",
        commands=_switch(heirs[0], group, on_kubernetes=on_kubernetes),
    )
    return Repair(replica=bad[0] if len(bad) == 1 else None, why=why, steps=(step,))


def _switch(to: str, group: str | None, *, on_kubernetes: bool) -> tuple[str, ...]:
    if on_kubernetes and group:
        return (f"kubectl rocketmq switchover {group} {to}",)
    return ("mqadmin electMaster -a <controllers> -c <cluster> -bn <brokerName> -b <brokerId>",)


def _aside(replicas: Sequence[ReplicaName], stores: _Stores, *, on_kubernetes: bool) -> Step:
    return Step(
        text="Back up the commitlog directory and epochFileCheckpoint of every replica.",
        commands=tuple(
            f"kubectl cp {replica}:<store>/commitlog ./{replica}-commitlog -c sidecar" for replica in replicas
        )
        if on_kubernetes
        else tuple(f"cp -a --sparse=always {stores.path(replica)} <a safe place>/{replica}" for replica in replicas),
    )


def _why(findings: Sequence[Finding]) -> str:
    return "; ".join(finding.detail for finding in findings[:3])


def _rebuild(
    replica: ReplicaName, findings: Sequence[Finding], group: str | None, stores: _Stores, *, on_kubernetes: bool
) -> Repair:
    steps = []
    if on_kubernetes and group:
        steps += [
            Step(
                text=f"Delete the data of {replica} and copy it again from the master. The operator refuses if no "
                "other replica is in sync.",
                commands=(f"kubectl rocketmq rebuild {group} {replica}",),
            ),
            Step(
                text="Verify again before you change anything else.",
                commands=(f"kubectl rocketmq verify {group} --now",),
            ),
        ]
    else:
        steps += [
            Step(
                text=f"Stop {replica}: its broker and, if it has one, its sidecar. Check that the others are in sync.",
                commands=("mqadmin getSyncStateSet -a <controllers> -b <brokerName>", "sh bin/mqshutdown broker"),
            ),
            Step(
                text="Move its store away, do not delete it yet. Its broker id is in brokerIdentity: the replica will "
                "register with a new one.",
                commands=(f"mv {stores.path(replica)} {stores.path(replica, '.bad')}",),
            ),
            Step(
                text="Start it: it copies everything from the master. Wait until it is in the SyncStateSet.",
                commands=("sh bin/mqbroker -c <its configuration>",),
            ),
            Step(
                text="Verify everything again before you change anything else; then delete the old store.",
                commands=("rocketmq-verify --full --replica ...",),
            ),
        ]
    return Repair(replica=replica, why=_why(findings), steps=tuple(steps))


def _other(finding: Finding, advice: str) -> Repair:
    who = " and ".join(finding.replicas)
    replica = finding.replicas[0] if len(finding.replicas) == 1 else None
    return Repair(replica=replica, why=finding.detail, steps=(Step(text=advice.format(who=who)),))
