"""Bytes of what Raft carries: batches of events (a command) and the whole state (a snapshot).

    command  := version u8 = 1, msgpack array of events; event := [type id, fields...] (`domain.events`)
    snapshot := version u8 = 1, msgpack array of groups by brokerName; group := [fields...] (`GroupRecord`)

Called by the state machine on every member. Fields at the end that have their default are left out (`domain.forms`),
so members of an older release read values without new fields. Decoding is strict: bytes that are not exactly this are
refused, since a member that guessed could diverge from the others. Checksums belong to the journal and the snapshot
file.
"""

from collections.abc import Mapping, Sequence

import msgspec

from rocketmq_controller.domain import invariants
from rocketmq_controller.domain.events import Event
from rocketmq_controller.domain.forms import shortened
from rocketmq_controller.domain.model import BrokerGroup, GroupRecord, State, canonical_bytes, joined_records

VERSION = 1
_PREFIX = bytes([VERSION])
_NEWER = "if another member runs a newer release, run that one here as well"

_events_encoder = msgspec.msgpack.Encoder(order="deterministic")
_events_decoder = msgspec.msgpack.Decoder(tuple[Event, ...])
_raw_records_decoder = msgspec.msgpack.Decoder(tuple[msgspec.Raw, ...])
_record_decoder = msgspec.msgpack.Decoder(GroupRecord)


class EventCodecError(Exception):
    """Bytes of our own log or snapshot that this version cannot have written, maybe a newer one; to continue would make
    the members diverge."""


def encode_events(events: Sequence[Event]) -> bytes:
    """One command: events in the order they are to be applied, of any groups."""
    return _PREFIX + _events_encoder.encode([shortened(event) for event in events])


def decode_events(data: bytes) -> tuple[Event, ...]:
    """The events of a command.

    Raises:
        EventCodecError: unknown version or not a batch of events.
    """
    payload = _payload(data, "command")
    try:
        return _events_decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EventCodecError(f"command of {len(data)} bytes does not decode: {error}; {_NEWER}") from error


def encode_snapshot(state: State) -> bytes:
    """All groups, tombstones included; equal states give equal bytes."""
    return _PREFIX + canonical_bytes(state)


def encode_records(records: Mapping[str, bytes]) -> bytes:
    """As `encode_snapshot`, of the groups' `record_bytes`."""
    return _PREFIX + joined_records(records)


def decode_snapshot(data: bytes) -> dict[str, BrokerGroup]:
    """The state of a snapshot.

    Raises:
        EventCodecError: unknown version, not a state, or one that could never have been reached.
    """
    payload = _payload(data, "snapshot")
    try:
        # One by one: a call that decoded them all would keep the other threads waiting.
        groups = [_record_decoder.decode(raw).group() for raw in _raw_records_decoder.decode(payload)]
        for group in groups:
            invariants.check_group(group)
    except (msgspec.DecodeError, UnicodeDecodeError, invariants.InvariantViolation) as error:
        raise EventCodecError(f"snapshot of {len(data)} bytes does not decode: {error}; {_NEWER}") from error
    state = {group.broker_name: group for group in groups}
    if len(state) != len(groups):
        raise EventCodecError(f"snapshot of {len(data)} bytes names a group twice")
    return state


def _payload(data: bytes, what: str) -> memoryview:
    if data[:1] != _PREFIX:
        raise EventCodecError(f"{what} of {len(data)} bytes has version {data[:1].hex() or 'none'}, not {VERSION}")
    return memoryview(data)[1:]
