"""Bytes of what Raft carries: batches of events (a command) and the whole state (a snapshot).

    command  := version u8 = 1, msgpack array of events; event := [type id, fields...] (`domain.events`)
    snapshot := version u8 = 1, msgpack array of groups by brokerName; group := [fields...] (`GroupRecord`)

Called by the state machine on every member. Decoding is strict: bytes that are not exactly this are refused, as a
member that guessed would no longer hold what the others hold. Checksums are the journal's and the snapshot file's
business.
"""

from collections.abc import Sequence

import msgspec

from rocketmq_controller.domain import invariants
from rocketmq_controller.domain.events import Event
from rocketmq_controller.domain.model import BrokerGroup, GroupRecord, State, canonical_bytes

VERSION = 1
_PREFIX = bytes([VERSION])

_events_encoder = msgspec.msgpack.Encoder(order="deterministic")
_events_decoder = msgspec.msgpack.Decoder(tuple[Event, ...])
_records_decoder = msgspec.msgpack.Decoder(tuple[GroupRecord, ...])


class EventCodecError(Exception):
    """Bytes of our own log or snapshot that we cannot have written in this version; going on would split the quorum."""


def encode_events(events: Sequence[Event]) -> bytes:
    """One command: events in the order they are to be applied, of any groups."""
    return _PREFIX + _events_encoder.encode(events)


def decode_events(data: bytes) -> tuple[Event, ...]:
    """The events of a command.

    Raises:
        EventCodecError: unknown version or not a batch of events.
    """
    payload = _payload(data, "command")
    try:
        return _events_decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EventCodecError(f"command of {len(data)} bytes does not decode: {error}") from error


def encode_snapshot(state: State) -> bytes:
    """All groups, tombstones included; equal states give equal bytes."""
    return _PREFIX + canonical_bytes(state)


def decode_snapshot(data: bytes) -> dict[str, BrokerGroup]:
    """The state of a snapshot.

    Raises:
        EventCodecError: unknown version, not a state, or one that could never have been reached.
    """
    payload = _payload(data, "snapshot")
    try:
        groups = [record.group() for record in _records_decoder.decode(payload)]
        for group in groups:
            invariants.check_group(group)
    except (msgspec.DecodeError, UnicodeDecodeError, invariants.InvariantViolation) as error:
        raise EventCodecError(f"snapshot of {len(data)} bytes does not decode: {error}") from error
    state = {group.broker_name: group for group in groups}
    if len(state) != len(groups):
        raise EventCodecError(f"snapshot of {len(data)} bytes names a group twice")
    return state


def _payload(data: bytes, what: str) -> memoryview:
    if data[:1] != _PREFIX:
        raise EventCodecError(f"{what} of {len(data)} bytes has version {data[:1].hex() or 'none'}, not {VERSION}")
    return memoryview(data)[1:]
