"""The steps that would repair what was found, as text and commands. For `--plan`; nothing here is ever executed.

Rules that every plan keeps: never more than one replica at a time, and the next only after the group is verified again;
nothing is rebuilt before a replica leads that this report finds no fault with, since a rebuild copies what the master
has; never a replica that alone has something right: that would be gone for good. So where every replica has some fault,
though each in another place, nothing is rebuilt: the right bytes are put into place by hand.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

import msgspec

from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.model import ReplicaName

NOTHING_TO_DO: Final = "nothing to repair"
MOST_COMMANDS: Final = 64
"""Of one step."""
_REBUILDS: Final = frozenset({Kind.CORRUPT_RECORD, Kind.MISSING_SEGMENT, Kind.DIVERGENT_HISTORY, Kind.BAD_STRUCTURE})


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do, in order."""

    text: str
    commands: tuple[str, ...] = ()
    """To be typed, in order; empty where only eyes are needed."""


class Repair(msgspec.Struct, frozen=True, kw_only=True):
    """What to do about one replica, or about what concerns all."""

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
) -> tuple[Repair, ...]:
    """One after the other, the second only when the first is done and verified.

    Args:
        replicas: all of the group that were read.
        masters: who leads now, as far as that is known.
        group: the BrokerGroup; a replica's name is its pod's then.
    """
    found = list(findings)
    leads = frozenset(masters)
    damage = [finding for finding in found if finding.kind in _REBUILDS]
    bad: dict[ReplicaName, list[Finding]] = {}
    for finding in damage:
        for replica in finding.replicas:
            bad.setdefault(replica, []).append(finding)
    whole = [replica for replica in replicas if replica not in bad]
    hopeless = [finding for finding in damage if not _right(finding, replicas)]
    scattered = [finding for finding in damage if not _right(finding, whole)]
    plans = []
    if hopeless:
        plans.append(_keep(hopeless, group, on_kubernetes=on_kubernetes))
    elif scattered:
        plans.append(_mend(damage, bad, group, on_kubernetes=on_kubernetes))
    elif damage:
        # who has most of what the others lack
        heirs = sorted(whole, key=lambda one: (-sum(one in _right(each, whole) for each in damage), one not in leads))
        if not leads - bad.keys():
            plans.append(_hand_over(heirs, sorted(leads & bad.keys()), group, on_kubernetes=on_kubernetes))
        plans += [_rebuild(replica, bad[replica], group, on_kubernetes=on_kubernetes) for replica in sorted(bad)]
    plans += [_other(finding) for finding in found if finding.kind in _OTHERS]
    return tuple(plans)


def _right(finding: Finding, among: Sequence[ReplicaName]) -> list[ReplicaName]:
    """Who of these has right what this finding is about, as far as that is known."""
    if finding.copies:
        right = {copy.replica for copy in finding.copies if copy.right}
        return [replica for replica in among if replica in right]
    if finding.kind is Kind.BAD_STRUCTURE:
        return []  # it is alike in all who have it
    return [replica for replica in among if replica not in finding.replicas]


def _keep(findings: Sequence[Finding], group: str | None, *, on_kubernetes: bool) -> Repair:
    places = ", ".join(str(finding.first_difference or finding.extent.start) for finding in findings[:8])
    steps = [
        Step(
            text="No copy is known to be right. Rebuild nothing and let nothing expire: each copy may be the only one "
            "that has the message. Raise fileReservedTime on all replicas, or stop the group if it can be spared."
        ),
        _aside(findings[0].replicas, on_kubernetes=on_kubernetes),
        Step(
            text=f"Look at the bytes at {places}: the report has them in hex. With all copies at hand, the producer's "
            "logs (UNIQ_KEY is the producer's msgId) or the consumers' side may tell which one is right.",
            commands=("mqadmin queryMsgByOffset -b <broker> -t <topic> -i <queueId> -o <queueOffset>",),
        ),
        Step(
            text="When it is decided whose copy stays, make that replica the master, then rebuild the others one by "
            "one.",
            commands=_switch("<pod>", group, on_kubernetes=on_kubernetes),
        ),
    ]
    return Repair(replica=None, why=_why(findings), steps=tuple(steps))


def _mend(
    findings: Sequence[Finding], bad: Collection[ReplicaName], group: str | None, *, on_kubernetes: bool
) -> Repair:
    """Each right copy is in a replica that has something else wrong."""
    pods = on_kubernetes and group
    store = "<store of {}>/commitlog/{:020d}"
    copies: list[str] = []
    for finding in findings:
        source = next((copy.replica for copy in finding.copies if copy.right), None)
        if source is None or finding.segment is None or finding.record is None or len(copies) >= MOST_COMMANDS:
            continue
        first = finding.extent.start - finding.segment
        copies += [
            f"dd if={store.format(source, finding.segment)} of={store.format(target, finding.segment)} bs=64K "
            f"iflag=skip_bytes,count_bytes oflag=seek_bytes skip={first} seek={first} "
            f"count={finding.extent.length} conv=notrunc"
            for target in finding.replicas
        ]
    steps = [
        Step(
            text="Every replica that has a right copy of something has something else wrong. Rebuild nothing: a "
            "rebuild copies the master's faults, and what only the rebuilt replica has right is gone for good. Let "
            "nothing expire: raise fileReservedTime on all replicas."
        ),
        _aside(sorted(bad), on_kubernetes=on_kubernetes),
        Step(
            text="With brokers and sidecars of all replicas stopped, put the right bytes where they are wrong, from "
            "the copies that were made aside.",
            commands=tuple(copies),
        ),
        Step(
            text="Start them and verify again, all of it, before anything else is touched.",
            commands=(f"kubectl rocketmq verify {group} --now",) if pods else ("rocketmq-verify --full --replica ...",),
        ),
    ]
    return Repair(replica=None, why=_why(findings), steps=tuple(steps))


def _hand_over(
    heirs: Sequence[ReplicaName], bad: Sequence[ReplicaName], group: str | None, *, on_kubernetes: bool
) -> Repair:
    """Before anything is rebuilt, which copies what the master has."""
    whole = " or ".join(heirs)
    why = f"{' and '.join(bad)} leads and is damaged" if bad else "a rebuild copies what the master has"
    step = Step(
        text=f"See that {whole} leads, which this report finds no fault with, before anything is rebuilt.",
        commands=_switch(heirs[0], group, on_kubernetes=on_kubernetes),
    )
    return Repair(replica=bad[0] if len(bad) == 1 else None, why=why, steps=(step,))


def _switch(to: str, group: str | None, *, on_kubernetes: bool) -> tuple[str, ...]:
    if on_kubernetes and group:
        return (f"kubectl rocketmq switchover {group} {to}",)
    return ("mqadmin electMaster -a <controllers> -c <cluster> -bn <brokerName> -b <brokerId>",)


def _aside(replicas: Sequence[ReplicaName], *, on_kubernetes: bool) -> Step:
    return Step(
        text="Copy every replica's commitlog directory and epochFileCheckpoint aside, all of them.",
        commands=tuple(f"kubectl cp {one}:<store>/commitlog ./{one}-commitlog -c sidecar" for one in replicas)
        if on_kubernetes
        else tuple(f"cp -a --sparse=always <store of {one}> <a safe place>/{one}" for one in replicas),
    )


def _why(findings: Sequence[Finding]) -> str:
    return "; ".join(finding.detail for finding in findings[:3])


def _rebuild(replica: ReplicaName, findings: Sequence[Finding], group: str | None, *, on_kubernetes: bool) -> Repair:
    steps = []
    if on_kubernetes and group:
        steps += [
            Step(
                text=f"Delete the data of {replica} and copy it anew from the master. The operator refuses if nobody "
                "else is in sync.",
                commands=(f"kubectl rocketmq rebuild {group} {replica}",),
            ),
            Step(
                text="Verify again before anything else is touched.",
                commands=(f"kubectl rocketmq verify {group} --now",),
            ),
        ]
    else:
        steps += [
            Step(
                text=f"Stop {replica}: its broker and, if there is one, its sidecar. See that the others are in sync.",
                commands=("mqadmin getSyncStateSet -a <controllers> -b <brokerName>", "sh bin/mqshutdown broker"),
            ),
            Step(
                text="Move its store away, do not delete it yet. With brokerIdentity goes its broker id: it will "
                "register with a new one.",
                commands=(f"mv <store of {replica}> <store of {replica}>.bad",),
            ),
            Step(
                text="Start it: it copies everything from the master. Wait until it is in the SyncStateSet.",
                commands=("sh bin/mqbroker -c <its configuration>",),
            ),
            Step(
                text="Verify again, all of it, before anything else is touched; then delete what was moved away.",
                commands=("rocketmq-verify --full --replica ...",),
            ),
        ]
    return Repair(replica=replica, why=_why(findings), steps=tuple(steps))


_OTHERS: Final = {
    Kind.QUEUE_MISMATCH: "Consume queues are made of the log, nothing is lost: stop {who}, move its consumequeue "
    "directory away, start it; it builds them anew (as master: switch over first).",
    Kind.UNREACHABLE: "Find out why {who} cannot be read (running? network policy? path and rights?), then verify "
    "again; nothing is known about its log.",
    Kind.LAGGING: "Nothing, if {who} is on its way; see that it is running, connected and catching up.",
    Kind.STALE_TAIL: "Nothing: {who} drops these bytes when it connects to its master. If it cannot connect, its log "
    "says why.",
    Kind.UNUSED_BYTES: "Nothing: no message is in these bytes ({who}).",
}


def _other(finding: Finding) -> Repair:
    who = " and ".join(finding.replicas)
    replica = finding.replicas[0] if len(finding.replicas) == 1 else None
    return Repair(replica=replica, why=finding.detail, steps=(Step(text=_OTHERS[finding.kind].format(who=who)),))
