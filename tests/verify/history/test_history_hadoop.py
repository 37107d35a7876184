"""A history through Hadoop's client in a real JVM of Spark."""

from pathlib import Path

import pytest

from rocketmq_verify.engine.session import Engine
from rocketmq_verify.history.folders import HistoryError
from rocketmq_verify.history.hadoop import HadoopFolder
from rocketmq_verify.history.store import HistoryStore
from tests.needed import needs
from tests.verify.report.report_kit import GROUP, NOW, figures, marks, verdict

pytestmark = [
    pytest.mark.processes,
    needs("java"),
    # pyspark's own sockets
    pytest.mark.filterwarnings("default::ResourceWarning", "default::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def folder(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> tuple[HadoopFolder, Path]:
    path = tmp_path_factory.mktemp("history")
    return HadoopFolder(engine.spark(), f"file://{path}"), path


def test_an_unknown_file_system_is_refused(engine: Engine) -> None:
    with pytest.raises(HistoryError, match="nope"):
        HadoopFolder(engine.spark(), "nope://x/y")


def test_files_of_hadoop_do_as_ours(folder: tuple[HadoopFolder, Path]) -> None:
    of, path = folder
    data = bytes(range(256)) * 9000
    assert of.names("a/b") == []
    of.write("a/b", "x", data)
    assert of.names("a/b") == ["x"]
    assert of.read("a/b", "x", len(data)) == data
    assert of.read("a/b", "x", 9) == data[:10]
    with pytest.raises(HistoryError, match="does not exist"):
        of.read("a/b", "y", 10)
    with pytest.raises(HistoryError, match="cannot be written"):
        of.write("a/b/x", "y", b"")
    of.remove("a/b", "x")
    of.remove("a/b", "x")
    assert list((path / "a" / "b").glob("*tmp*")) == []


def test_a_history_comes_back(folder: tuple[HadoopFolder, Path]) -> None:
    of = HistoryStore("hdfs://somewhere/else", now_ms=lambda: NOW, hadoop=lambda _: folder[0])
    of.save(GROUP, "abc", verdict(), watermarks=marks(), spans=(), figures=figures())
    assert of.load(GROUP) == marks()
    assert [row.run_id for row in of.last(GROUP, 3)] == ["abc"]
