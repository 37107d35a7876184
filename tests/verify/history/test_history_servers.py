"""A history on a real HDFS, and in a real store that speaks S3; both come from Maven."""

import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketmq_demo.calls import accepts
from rocketmq_demo.ports import PortPool
from rocketmq_demo.processes import OwnedProcess
from rocketmq_formats import properties
from rocketmq_verify.engine.session import Engine
from rocketmq_verify.history.folders import HistoryError
from rocketmq_verify.history.hadoop import HadoopFolder
from rocketmq_verify.history.store import HistoryStore
from tests.needed import needs
from tests.verify.report.report_kit import GROUP, NOW, figures, marks, verdict

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(600, func_only=True),  # the first time Maven downloads
    needs("java", "mvn"),
    # pyspark's own sockets
    pytest.mark.filterwarnings("default::ResourceWarning", "default::pytest.PytestUnraisableExceptionWarning"),
]
QUICK = ["java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
FOLDER = "DefaultCluster/broker-a"


def class_path(name: str, folder: Path) -> str:
    """Of the artifacts in that pom.xml; Maven fetches what it has not got yet."""
    pom, file = Path(__file__).parent / "maven" / name / "pom.xml", folder / "classpath.txt"
    command = ["mvn", "-B", "-q", "-f", str(pom), "dependency:build-classpath", f"-Dmdep.outputFile={file}"]
    said = ""
    for mode in (["-o"], []):  # what is here already needs no network
        done = subprocess.run([*command, *mode], capture_output=True, text=True, check=False, timeout=500)
        if done.returncode == 0:
            return file.read_text()
        said = done.stdout
    raise RuntimeError(said[-2000:])


def wait(server: OwnedProcess, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not ready():
        assert server.alive, server.tail()
        assert time.monotonic() < deadline, server.tail()
        time.sleep(0.05)


@pytest.fixture
def hdfs(tmp_path: Path, ports: PortPool) -> Iterator[str]:
    details, port = tmp_path / "details.json", ports.single()
    main = ["-cp", class_path("hdfs", tmp_path), "org.apache.hadoop.test.MiniDFSClusterManager"]
    command = [*QUICK, *main, "-format", "-datanodes", "1", "-nnport", str(port), "-writeDetails", str(details)]
    with OwnedProcess("hdfs", command, folder=tmp_path) as server:
        wait(server, lambda: details.exists() and details.read_text().endswith("}"))
        yield f"hdfs://localhost:{port}"


@pytest.fixture
def s3(tmp_path: Path, ports: PortPool, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    port, objects = ports.single(), tmp_path / "objects"
    (objects / "bucket").mkdir(parents=True)
    settings = tmp_path / "s3proxy.conf"
    settings.write_bytes(
        properties.dump(
            {
                "s3proxy.endpoint": f"http://127.0.0.1:{port}",
                "s3proxy.authorization": "aws-v2-or-v4",
                "s3proxy.identity": "somebody",
                "s3proxy.credential": "secret",
                "jclouds.provider": "filesystem",
                "jclouds.filesystem.basedir": str(objects),
            }
        )
    )
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    # as in docs/verification.md: this store does not know the checksums that S3 has had since 2025
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    monkeypatch.setenv("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_required")
    command = [*QUICK, "-cp", class_path("s3", tmp_path), "org.gaul.s3proxy.Main", "--properties", str(settings)]
    with OwnedProcess("s3proxy", command, folder=tmp_path) as server:
        wait(server, lambda: accepts(f"127.0.0.1:{port}"))
        yield f"s3a://bucket/deep/history?scheme=http&endpoint_override=127.0.0.1:{port}&region=us-east-1"


def runs_come_back(of: Callable[[], HistoryStore]) -> None:
    """Two runs by two processes, as far as the store can tell."""
    assert of().load(GROUP) is None
    assert of().last(GROUP, 3) == ()
    for name, found in (("one", marks()), ("two", marks(suspects=[(10, 20)]))):
        store = of()
        store.load(GROUP)
        store.save(GROUP, name, verdict(), watermarks=found, spans=(), figures=figures())
    later = of()
    assert later.load(GROUP) == marks(suspects=[(10, 20)])
    assert [run.run_id for run in later.last(GROUP, 3)] == ["one", "two"]


def test_hdfs(engine: Engine, hdfs: str) -> None:
    def hadoop(uri: str) -> HadoopFolder:
        return HadoopFolder(engine.spark(), uri)

    uri = f"{hdfs}/deep/history"
    runs_come_back(lambda: HistoryStore(uri, now_ms=lambda: NOW, hadoop=hadoop))
    folder = hadoop(uri)
    names = folder.names(f"{FOLDER}/runs")
    assert len(names) == 2
    with pytest.raises(HistoryError, match="cannot be renamed"):
        folder.write(f"{FOLDER}/runs", names[0], b"another")
    folder.remove(f"{FOLDER}/runs", names[0])
    folder.remove(f"{FOLDER}/runs", names[0])
    assert folder.names(f"{FOLDER}/runs") == names[1:]
    with pytest.raises(HistoryError, match="does not exist"):
        folder.read(f"{FOLDER}/runs", names[0], 10)


def test_s3(s3: str) -> None:
    runs_come_back(lambda: HistoryStore(s3, now_ms=lambda: NOW))
    with pytest.raises(HistoryError, match="nobucket"):
        HistoryStore(s3.replace("//bucket", "//nobucket"), now_ms=lambda: NOW).save(
            GROUP, "one", verdict(), watermarks=None, spans=(), figures=figures()
        )
