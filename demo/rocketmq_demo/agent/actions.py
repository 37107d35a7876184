"""What the agent's machine wants done; `shell` does it and tells the machine how it ended."""

import msgspec

from rocketmq_demo.agent.wire import ReportRequestHeader
from rocketmq_formats.broker_identity import AppliedIdentity, BrokerIdentity
from rocketmq_formats.remoting.codes import RequestCode
from rocketmq_formats.remoting.controller import BrokerHeartbeatRequestHeader
from rocketmq_formats.remoting.headers import Header


class Ask(msgspec.Struct, frozen=True):
    """Ask a controller; ends in `on_answer`, with None if no answer came. One at a time."""

    address: str
    code: RequestCode
    header: Header | None = None
    body: bytes = b""


class Heartbeat(msgspec.Struct, frozen=True):
    """Send 904 oneway to each controller; nothing to tell."""

    addresses: tuple[str, ...]
    header: BrokerHeartbeatRequestHeader


class Report(msgspec.Struct, frozen=True):
    """Report to the master; ends in `on_report_answer`."""

    address: str
    header: ReportRequestHeader


class SaveApplied(msgspec.Struct, frozen=True):
    """Write the temporary identity file, durably; ends in `on_stored`."""

    applied: AppliedIdentity


class SaveIdentity(msgspec.Struct, frozen=True):
    """Write the identity file, durably, then remove the temporary one; ends in `on_stored`."""

    identity: BrokerIdentity


class ForgetApplied(msgspec.Struct, frozen=True):
    """Remove the temporary identity file: its id went to somebody else; ends in `on_stored`."""


class Note(msgspec.Struct, frozen=True):
    """Log a line: a constant text and what varies."""

    text: str
    values: dict[str, object]


Stored = SaveApplied | SaveIdentity | ForgetApplied
Action = Ask | Heartbeat | Report | Stored | Note
Actions = tuple[Action, ...]
