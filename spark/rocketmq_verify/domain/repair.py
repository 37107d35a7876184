"""The steps that would repair what was found, as text and commands. For `--plan`; nothing here is ever executed.

Rules that every plan keeps: never more than one replica at a time, and the next only after the group is aligned again;
never the master before another one leads; never a replica without a right copy elsewhere: a rebuild copies what the
others have, and what only the bad copy has is then gone for good.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.model import ReplicaName

NOTHING_TO_DO: Final = "nothing to repair"
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
    hopeless = [finding for finding in found if _hopeless(finding, replicas)]
    plans = []
    if hopeless:
        plans.append(_keep(hopeless, group, on_kubernetes=on_kubernetes))
    else:
        bad: dict[ReplicaName, list[Finding]] = {}
        for finding in found:
            if finding.kind in _REBUILDS:
                for replica in finding.replicas:
                    bad.setdefault(replica, []).append(finding)
        # slaves first: after that a master has somebody whole to hand over to
        plans += [
            _rebuild(replica, bad[replica], group, leads=replica in leads, on_kubernetes=on_kubernetes)
            for replica in sorted(bad, key=lambda name: (name in leads, name))
        ]
    plans += [_other(finding) for finding in found if finding.kind in _OTHERS]
    return tuple(plans)


def _hopeless(finding: Finding, replicas: Sequence[ReplicaName]) -> bool:
    """Whether nobody is known to have what this finding is about right."""
    if finding.kind not in _REBUILDS:
        return False
    if finding.copies:
        return not any(copy.right for copy in finding.copies)
    return set(finding.replicas) >= set(replicas)


def _keep(findings: Sequence[Finding], group: str | None, *, on_kubernetes: bool) -> Repair:
    places = ", ".join(str(finding.first_difference or finding.extent.start) for finding in findings[:8])
    steps = [
        Step(
            text="No copy is known to be right. Rebuild nothing and let nothing expire: each copy may be the only one "
            "that has the message. Raise fileReservedTime on all replicas, or stop the group if it can be spared."
        ),
        Step(
            text="Copy every replica's commitlog directory and epochFileCheckpoint aside, all of them.",
            commands=tuple(
                f"kubectl cp {one}:<store>/commitlog ./{one}-commitlog -c sidecar" for one in findings[0].replicas
            )
            if on_kubernetes
            else tuple(f"cp -a --sparse=always <store of {one}> <a safe place>/{one}" for one in findings[0].replicas),
        ),
        Step(
            text=f"Look at the bytes at {places}: the report has them in hex. With all copies at hand, the producer's "
            "logs (UNIQ_KEY is the producer's msgId) or the consumers' side may tell which one is right.",
            commands=("mqadmin queryMsgByOffset -b <broker> -t <topic> -i <queueId> -o <queueOffset>",),
        ),
        Step(
            text="When it is decided whose copy stays, make that replica the master, then rebuild the others one by "
            "one.",
            commands=(f"kubectl rocketmq switchover {group} <pod>",)
            if on_kubernetes and group
            else ("mqadmin electMaster -a <controllers> -c <cluster> -bn <brokerName> -b <brokerId>",),
        ),
    ]
    return Repair(replica=None, why="; ".join(finding.detail for finding in findings[:3]), steps=tuple(steps))


def _rebuild(
    replica: ReplicaName, findings: Sequence[Finding], group: str | None, *, leads: bool, on_kubernetes: bool
) -> Repair:
    steps = []
    if leads:
        steps.append(
            Step(
                text=f"{replica} leads: another replica has to lead first, one that this report finds no fault with.",
                commands=(f"kubectl rocketmq switchover {group} <pod>",)
                if on_kubernetes and group
                else ("mqadmin electMaster -a <controllers> -c <cluster> -bn <brokerName> -b <brokerId>",),
            )
        )
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
    return Repair(replica=replica, why="; ".join(finding.detail for finding in findings[:3]), steps=tuple(steps))


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
