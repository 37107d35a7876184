"""What is read of whom, and in how many parts; sizes as people write them."""

import pickle

import msgspec
import pytest

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.planning.lineage import lineage
from rocketmq_verify.sizes import format_bytes, parse_size
from rocketmq_verify.sources.source import SourceOptions, SpecError
from rocketmq_verify.sources.work import Content, Work, everything, parse_places, tasks
from tests.verify.logs_kit import log

GIB = 1 << 30
PLACES = parse_places("a=/data/a;b=files:/data/b; c=sidecar:host:10920 ;")


def work(size: int = 10 * GIB, **changes: object) -> Work:
    known = lineage([log(name, end=size, size=GIB) for name in "abc"])
    options = changes.pop("options", SourceOptions())
    assert isinstance(options, SourceOptions)
    return Work.of(everything(known, chunk_size=1 << 20), known, options, **changes)


def test_places() -> None:
    assert [place.spec for place in PLACES] == ["files:/data/a", "files:/data/b", "sidecar:host:10920"]
    assert [place.has_files for place in PLACES] == [True, True, False]


@pytest.mark.parametrize("text", ["a", "=x", "a=", "a=/x;a=/y"])
def test_places_that_are_none(text: str) -> None:
    with pytest.raises(SpecError):
        parse_places(text)


def test_replicas_in_turn_and_few_for_sidecars() -> None:
    found = tasks(PLACES, Content.DIGESTS, work())
    assert [task.place.name for task in found[:4]] == ["a", "b", "c", "a"]
    assert [sum(task.place.name == name for task in found) for name in "abc"] == [20, 20, 2]
    for name in "abc":
        chunks = [chunk for task in found if task.place.name == name for chunk in task.chunks()]
        assert sum(chunk.length for chunk in chunks) == 10 * GIB
        assert chunks == sorted(chunks)


def test_a_limit_is_shared_by_those_that_run_together() -> None:
    limited = work(options=SourceOptions(bytes_per_second=100))
    found = tasks(PLACES, Content.DIGESTS, limited, at_once=4)
    assert {task.place.name: task.options.bytes_per_second for task in found} == {"a": 25, "b": 25, "c": 50}


def test_everything_survives_the_way_to_the_workers() -> None:
    of = work()
    assert msgspec.json.decode(msgspec.json.encode(of), type=Work) == of
    (task, *_) = tasks(PLACES, Content.DIGESTS, of)
    assert pickle.loads(pickle.dumps(task)) == task


def test_only_what_is_asked_for() -> None:
    known = lineage([log(name, end=10 * GIB, size=GIB) for name in "ab"])
    what = everything(known, chunk_size=1 << 20, start=GIB + 5, end=3 * GIB)
    assert list(what.pieces) == [Extent(GIB + 5, 3 * GIB)]


@pytest.mark.parametrize(
    ("text", "size"), [("0", 0), ("4096", 4096), ("1Mi", 1 << 20), ("200M", 200_000_000), ("2 ", 2), ("1kib", 1024)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "M", "-1", "1.5Mi", "1X", "1" * 30, "9999999999Ti"])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="is"):
        parse_size(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_526_442, "1.53 MB"), (999_600, "1 MB"), (3.2e15, "3200 TB")],
)
def test_sizes_for_people(count: float, text: str) -> None:
    assert format_bytes(count) == text
