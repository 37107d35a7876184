"""The digests of cells do not depend on how the log was read, and a change of any byte is another digest."""

from __future__ import annotations

from random import Random

import msgspec
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.inquiry.cells import CellSums, Read, mark
from rocketmq_verify.domain.inquiry.ledger import cut_chunks
from rocketmq_verify.domain.inquiry.narrow import drive
from rocketmq_verify.domain.model import ChunkDigest, ReadRequest, ReplicaName
from rocketmq_verify.domain.planning.chunks import Plan, by_cells, chunks, common, in_cells, plan, whole_cells, within
from rocketmq_verify.domain.planning.cursor import next_leg
from rocketmq_verify.domain.planning.lineage import Lineage, lineage
from tests.verify.logs_kit import log
from tests.verify.planted.planted_kit import deterministic

CHUNK = 4096
CELL = 4 * CHUNK
SEGMENT = 10 * CHUNK
"""No multiple of a cell: some cells are in two files, and some chunks end with one."""
END = 3 * SEGMENT + 5000
A = ReplicaName("a")
DATA = Random(7).randbytes(END)


def digest(data: bytes, extent: Extent) -> bytes:
    return xxhash.xxh3_128_digest(data[extent.start : extent.end])


def read(of: Plan, known: Lineage, legs: list[tuple[Extent, ...]], data: bytes = DATA) -> Read:
    """Of two equal replicas, in these legs."""
    sums = CellSums()

    def answer(requests: tuple[ReadRequest, ...]) -> list[bytes | None]:
        return [digest(data, request.extent) for request in requests]

    for leg in legs:
        part, found = within(of, leg), CellSums()
        for chunk in chunks(part, part.pieces, known):
            names = [zone.replica for zone in known.zones if zone.extent.meet(chunk.extent) == chunk.extent]
            one = digest(data, chunk.extent)
            found.add_chunk(part, chunk, [ChunkDigest(name, chunk.offset, chunk.length, one) for name in names])
        sums.merge(found)
        drive(cut_chunks(part, known, sums), answer)
    return sums.take(CELL)


def known(*ends: int, epochs: tuple[tuple[int, int], ...] = ((1, 0),)) -> Lineage:
    names = "abcdefg"
    return lineage([log(names[at], epochs, end, size=SEGMENT) for at, end in enumerate(ends)])


def planned(of: Lineage) -> Plan:
    return plan(of, [Extent(0, END)], chunk_size=CHUNK, cell_size=CELL)


WHOLE = read(planned(known(END, END)), known(END, END), [(Extent(0, END),)])


def test_all_whole_cells_have_a_digest() -> None:
    assert sorted(WHOLE) == list(range(0, END - CELL + 1, CELL))
    assert all(set(digests) == {"a", "b"} for digests in WHOLE.values())
    assert len({digests[A] for digests in WHOLE.values()}) == len(WHOLE)


@deterministic
@given(
    order=st.randoms(use_true_random=False),
    leg=st.integers(1, 2 * SEGMENT),
    borders=st.lists(st.integers(1, END - 1), max_size=3, unique=True).map(sorted),
    third=st.integers(1, END),
)
def test_it_does_not_matter_how_the_log_was_read(order: Random, leg: int, borders: list[int], third: int) -> None:
    epochs = ((1, 0), *((2 + number, start) for number, start in enumerate(borders)))
    of = known(END, END, third, epochs=epochs)
    what = planned(of)
    cells = [Extent(start, min(start + CELL, END)) for start in range(0, END, CELL)]
    order.shuffle(cells)
    pieces, legs = by_cells(what, cells), list[tuple[Extent, ...]]()
    while pieces:
        part, pieces = next_leg(pieces, leg, SEGMENT)
        legs.append(part)
    found = read(what, of, legs)
    assert {cell: {name: one for name, one in own.items() if name != "c"} for cell, own in found.items()} == WHOLE
    assert all(own["c"] == own[A] for own in found.values() if ReplicaName("c") in own)
    assert {cell for cell, own in found.items() if ReplicaName("c") in own} == {
        cell for cell in WHOLE if cell + CELL <= third
    }


@deterministic
@given(st.integers(0, END - 1), st.integers(0, 7))
def test_a_bit_is_another_digest_of_its_cell_only(at: int, bit: int) -> None:
    data = bytearray(DATA)
    data[at] ^= 1 << bit
    found = read(planned(known(END, END)), known(END, END), [(Extent(0, END),)], bytes(data))
    assert {cell for cell in found if found[cell] != WHOLE[cell]} == {at - at % CELL} & set(WHOLE)


def test_chunks_that_change_places_are_another_cell() -> None:
    data = DATA[CHUNK : 2 * CHUNK] + DATA[:CHUNK] + DATA[2 * CHUNK :]
    found = read(planned(known(END, END)), known(END, END), [(Extent(0, END),)], data)
    assert found[0] != WHOLE[0]
    assert mark(0, b"x") ^ mark(CHUNK, b"y") != mark(0, b"y") ^ mark(CHUNK, b"x")


def test_a_mark_is_the_same_for_ever() -> None:
    """It is in ledgers."""
    assert f"{mark(1 << 40, bytes(range(16))):032x}" == "611930025bb8af5a7da2b69075b734ad"


extents = st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda pair: Extent(pair[0], pair[0] + pair[1]))


@deterministic
@given(st.lists(extents, max_size=5))
def test_cells_against_single_bytes(some: list[Extent]) -> None:
    there = {at for extent in some for at in range(extent.start, extent.end)}
    touched = {at for cell in range(0, 100, 8) for at in range(cell, cell + 8) if there & set(range(cell, cell + 8))}
    whole = {at for cell in range(0, 100, 8) for at in range(cell, cell + 8) if set(range(cell, cell + 8)) <= there}
    assert {at for one in in_cells(some, 8) for at in range(one.start, one.end)} == touched
    assert {at for one in whole_cells(some, 8) for at in range(one.start, one.end)} == whole


@deterministic
@given(st.lists(extents, max_size=5), st.lists(extents, max_size=5))
def test_a_cell_is_read_whole_where_a_part_of_it_is(new: list[Extent], pieces: list[Extent]) -> None:
    of = known(END, END)
    scaled = [Extent(one.start * 1000, one.end * 1000) for one in new]
    what = plan(of, scaled, chunk_size=CHUNK, cell_size=CELL)
    narrow = plan(of, scaled, chunk_size=CHUNK)
    assert common(what.pieces, narrow.pieces) == common(narrow.pieces, narrow.pieces)
    wide = common(in_cells(narrow.pieces, CELL), whole_cells([Extent(0, END)], CELL))
    assert common(what.pieces, wide) == wide
    assert (what.new_bytes, what.old_bytes) == (narrow.new_bytes, narrow.old_bytes)
    ordered = by_cells(what, [Extent(one.start * 1000, one.end * 1000) for one in pieces])
    assert sum(one.length for one in ordered) == sum(one.length for one in common(ordered, ordered))
    assert msgspec.structs.replace(what, cell_size=0).pieces == what.pieces
