"""cleanBrokerData (1011): an administrator makes the controllers forget members, or a whole set.

Differs from 5.3.3:
- isCleanLivingBroker honours the list of ids (Java forgets to read it and removes the whole set).
- Without isCleanLivingBroker a whole set is refused while any member is alive. Java asks whether a master is
  recorded; here a dead master stays recorded, and living slaves count as well.
- The master's id is refused without isCleanLivingBroker, dead or not (Java leaves a set whose master does not exist).
  With it the role becomes vacant, the epoch stays, and the next scan elects.
- Members that are the whole rest of the syncStateSet are refused while others would remain: what those lack would be
  unknown. The remark names the alternatives. (Java drops half of the record.)
- When the syncStateSet shrinks, its epoch grows, so that a running master notices it.
- Cleaning all members leaves a tombstone: ids and epochs continue from where they were (IdentityForever,
  OneMasterPerEpoch). To all other requests it is an unknown set, so brokers that still run get 2008 and 2010 as from
  Java.
"""

import re

from rocketmq_controller.domain import events
from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.model import MAX_EPOCH, BrokerGroup, BrokerId, LivenessView, presumed_alive
from rocketmq_controller.domain.requests.identity import named_foreign_cluster
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.remoting.controller import CleanControllerBrokerDataRequestHeader

_MOST_TEXT = 20_000
"""Characters of a list of ids: a thousand of the longest."""
_JAVA_LONG = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


def clean_broker_data(
    group: BrokerGroup | None, request: CleanControllerBrokerDataRequestHeader, view: LivenessView
) -> Decision:
    """Codes: 0, 2009; 2005 if the group is of another cluster."""
    if (remark := named_foreign_cluster(group, request.cluster_name)) is not None:
        return Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, remark)
    listed = (request.broker_controller_ids_to_clean or "").strip()
    wanted = _parse_ids(listed) if listed else None
    remark = _unreadable(wanted) or _living(group, request, wanted, view)
    if remark is None and (group is None or not group.replicas):
        remark = f"Broker {request.broker_name} is not existed,clean broker data failure."
    if remark is not None or group is None or isinstance(wanted, str):
        return Decision(ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, remark)

    removed = frozenset(group.replicas) if wanted is None else wanted & group.replicas.keys()
    if not removed:
        return Decision(ResponseCode.SUCCESS)
    remark = _damage(group, removed, forced=request.is_clean_living_broker)
    if remark is not None:
        return Decision(ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, remark)
    everything = removed == group.replicas.keys()
    event = events.CleanBrokerData(group.broker_name, None if everything else removed, group.sync_state_set_epoch)
    return Decision(ResponseCode.SUCCESS, events=(event,))


def _unreadable(wanted: frozenset[BrokerId] | str | None) -> str | None:
    if not isinstance(wanted, str):
        return None
    return (
        "Please set the option <brokerControllerIdsToClean> according to the format,"
        f' exception: For input string: "{wanted}"'
    )


def _living(
    group: BrokerGroup | None,
    request: CleanControllerBrokerDataRequestHeader,
    wanted: frozenset[BrokerId] | str | None,
    view: LivenessView,
) -> str | None:
    name = request.broker_name
    if request.is_clean_living_broker or isinstance(wanted, str):
        return None
    members = (frozenset() if group is None else frozenset(group.replicas)) if wanted is None else wanted
    alive = next((broker_id for broker_id in sorted(members) if presumed_alive(view, name, broker_id)), None)
    if alive is None:
        return None
    shown = name if wanted is None else f"[{name},  {alive}]"
    return f"Broker {shown} is still alive, clean up failure"


def _damage(group: BrokerGroup, removed: frozenset[BrokerId], *, forced: bool) -> str | None:
    """Why these members must not be removed; None if they may be."""
    name, master = group.broker_name, group.master_broker_id
    if group.sync_state_set_epoch >= MAX_EPOCH:
        return f"Broker {name} cannot be cleaned, its syncStateSetEpoch has reached {MAX_EPOCH}"
    if removed == group.replicas.keys():
        return None
    if group.sync_state_set and group.sync_state_set <= removed:
        return (
            f"Broker {name}: no member of the syncStateSet would remain, clean up failure;"
            " let another replica join it or become master first (enableElectUncleanMaster), or clean the whole set"
        )
    if master in removed and not forced:
        return (
            f"Broker [{name},  {master}] is the master, clean up failure;"
            " elect another one first, or clean living brokers (isCleanLivingBroker)"
        )
    return None


def _parse_ids(text: str) -> frozenset[BrokerId] | str:
    """The ids of `1;2`, or the first part that Java would not read as a long; of a text that is too long, its
    beginning."""
    if len(text) > _MOST_TEXT:
        return f"{text[:64]}..."
    parts = text.rstrip(";").split(";")
    ids: set[BrokerId] = set()
    for part in parts:
        if not _JAVA_LONG.fullmatch(part) or not -(2**63) <= int(part) < 2**63:
            return part
        ids.add(BrokerId(int(part)))
    return frozenset(ids)
