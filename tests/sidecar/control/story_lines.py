"""A machine's actions as lines of a story."""

from rocketmq_formats.codes import RequestCode
from rocketmq_formats.replica_link import Following, FromSidecar, Grant, Hold, Lease, Prepare, Welcome
from rocketmq_sidecar.domain.actions import (
    AcceptLoss,
    Action,
    AdoptSyncSet,
    BeginEpoch,
    Disconnect,
    Follow,
    ForgetApplied,
    LogLine,
    ProposalRefused,
    Request,
    SaveApplied,
    SaveControllers,
    SaveIdentity,
    SendToBroker,
    StopReplication,
)

_ROUTINE = frozenset({RequestCode.CONTROLLER_GET_METADATA_INFO, RequestCode.CONTROLLER_GET_REPLICA_INFO})


def describe(action: Action) -> str | None:
    """One line; None for routine actions."""
    line: str | None = None
    match action:
        case Request(code=code) if code not in _ROUTINE:
            line = f"asks {int(code)} {code.name}"
        case SendToBroker(message=message):
            line = _message(message)
        case Disconnect():
            line = "closes its connections to the controllers"
        case LogLine() if action.level != "info":
            line = f"logs {action.level}: {action.text}"
        case _:
            line = _file(action) or _replication(action)
    return line


def _file(action: Action) -> str | None:
    match action:
        case SaveApplied(applied):
            return f"writes .broker.meta.temp: brokerId {applied.identity.broker_id}, {applied.register_check_code}"
        case SaveIdentity(identity):
            return f"writes .broker.meta: brokerId {identity.broker_id}"
        case ForgetApplied():
            return "removes .broker.meta.temp"
        case SaveControllers(group):
            return f"writes .controllers.meta: {group}"
    return None


def _replication(action: Action) -> str | None:
    line: str | None = None
    match action:
        case Follow():
            line = f"follows {action.master_broker_id} at {action.master_address} in epoch {action.epoch}"
        case BeginEpoch():
            line = f"begins epoch {action.epoch} at {action.max_offset}"
        case StopReplication():
            line = "stops replicating"
        case AcceptLoss():
            line = "takes its log as it is"
        case AdoptSyncSet(agreed):
            line = f"in sync: {sorted(agreed.sync_state_set)}"
        case ProposalRefused(dead=dead):
            line = "its set was refused" if dead is None else f"its set was refused: {dead} is not alive"
        case _:
            pass
    return line


def _message(message: FromSidecar) -> str | None:
    line: str | None = None
    match message:
        case Welcome():
            line = f"-> Welcome brokerId {message.broker_id}"
        case Prepare():
            line = f"-> Prepare epoch {message.epoch}"
        case Grant():
            line = f"-> Grant epoch {message.epoch}"
        case Following():
            line = f"-> Following {message.master_broker_id} in epoch {message.epoch}"
        case Hold():
            line = f"-> Hold: {'none' if message.kind is None else message.kind}"
        case _ if not isinstance(message, Lease):
            line = f"-> {message}"
        case _:
            pass
    return line
