"""From chunks to bytes: how many questions it takes, and that what differs is found wherever it is."""

from __future__ import annotations

import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.inquiry.narrow import LEAF, MOST_RANGES, Narrowed, Suspect, drive, first_difference, narrow
from rocketmq_verify.domain.model import ReadRequest, ReplicaName

A, B, C = (ReplicaName(name) for name in "abc")
deterministic = settings(derandomize=True, max_examples=50)


class Copies:
    def __init__(self, size: int, replicas: tuple[ReplicaName, ...] = (A, B, C)) -> None:
        self.data = {name: bytearray(size) for name in replicas}
        self.rounds: list[tuple[ReadRequest, ...]] = []

    def answer(self, requests: tuple[ReadRequest, ...]) -> list[bytes | None]:
        self.rounds.append(requests)
        return [self.one(request) for request in requests]

    def one(self, request: ReadRequest) -> bytes | None:
        data = bytes(self.data[request.replica][request.extent.start : request.extent.end])
        if len(data) < request.extent.length:
            return None
        return xxhash.xxh3_128_digest(data) if request.digest else data

    def narrowed(self, *extents: Extent) -> Narrowed:
        return drive(narrow(Suspect(extent, tuple(self.data)) for extent in extents), self.answer)


@deterministic
@given(
    size=st.integers(1, 1 << 20),
    at=st.lists(st.tuples(st.floats(0, 0.999999), st.sampled_from([A, B, C])), min_size=1, max_size=5),
)
def test_every_flipped_byte_is_found(size: int, at: list[tuple[float, ReplicaName]]) -> None:
    copies = Copies(size)
    for where, who in at:
        copies.data[who][int(where * size)] = 1
    expected = [
        offset
        for offset in sorted({int(where * size) for where, _ in at})
        if len({data[offset] for data in copies.data.values()}) > 1
    ]
    found = []
    for place in copies.narrowed(Extent(0, size)).places:
        assert place.extent.length <= LEAF
        offset = place.differences(0)
        while offset is not None:
            found.append(offset)
            offset = place.differences(offset + 1)
    assert found == expected


def test_a_chunk_of_a_mebibyte_takes_two_rounds_of_digests_and_a_read() -> None:
    copies = Copies(1 << 20)
    copies.data[B][777_777] = 1
    copies.narrowed(Extent(0, 1 << 20))
    assert [len(requests) for requests in copies.rounds] == [48, 48, 3]
    assert [request.extent.length for request in copies.rounds[-1]] == [LEAF] * 3


def test_many_chunks_take_no_more_rounds() -> None:
    copies = Copies(8 << 20)
    for chunk in range(8):
        copies.data[C][(chunk << 20) + 5] = 1
    found = copies.narrowed(*(Extent(chunk << 20, chunk + 1 << 20) for chunk in range(8)))
    assert len(found.places) == 8
    assert len(copies.rounds) == 3


def test_what_differs_everywhere_is_bounded_and_hides_nothing() -> None:
    copies = Copies(4 << 20)
    copies.data[B][:] = b"\1" * (4 << 20)
    copies.data[C][3_000_000] = 7
    found = copies.narrowed(Extent(0, 4 << 20))
    assert len(found.places) <= 2 * MOST_RANGES
    assert any(place.extent.start <= 3_000_000 < place.extent.end for place in found.places)
    (rest,) = [rest for groups, rest in found.rest.items() if groups == ((A, C), (B,))]
    assert rest.count > 0
    assert rest.end > 3_000_000


def test_bytes_that_expire_in_between_are_left_out() -> None:
    copies = Copies(1 << 20)
    copies.data[B][5] = 1
    del copies.data[B][6:]
    assert copies.narrowed(Extent(0, 1 << 20)).places == ()


@deterministic
@given(one=st.binary(max_size=50), other=st.binary(max_size=50), start=st.integers(0, 50))
def test_first_difference(one: bytes, other: bytes, start: int) -> None:
    pairs = list(zip(one, other, strict=False))
    expected = next((at for at in range(start, len(pairs)) if pairs[at][0] != pairs[at][1]), None)
    assert first_difference(one, other, start) == expected
