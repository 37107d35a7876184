"""Impossible starts: each ends at once with its exit code and one line that names the remedy."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from rocketmq_controller import __main__
from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.ports import HOST, PortPool
from rocketmq_demo.processes import clean_environment
from rocketmq_formats import properties
from tests.processes.kit import logged, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]

SECRET = "00112233445566778899aabbccddeeff-not-to-be-seen"
PERMISSIONS_COUNT = () if os.geteuid() else ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
"""Root may otherwise read everything."""


@pytest.fixture
def settings(tmp_path: Path, ports: PortPool) -> dict[str, str]:
    """A quorum of one that would start."""
    secret = tmp_path / "raft.secret"
    secret.write_text(SECRET)
    port = ports.block()
    return {
        "controllerDLegerPeers": f"n0-{HOST}:{port}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": str(tmp_path / "store"),
        "controllerRaftSecretFile": str(secret),
        "controllerListenHost": HOST,
        "metricsPromExporterHost": HOST,
        "metricsPromExporterPort": str(port + 3),
        "logFormat": "json",
    }


def controller(
    *arguments: str,
    settings: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    under: Sequence[str] = (),
) -> subprocess.CompletedProcess[str]:
    """Run the command until it ends by itself; its stdout and stderr must not contain the secret.

    `under`: a command that runs it."""
    command = [*under, sys.executable, "-m", "rocketmq_controller", *arguments]
    if settings is not None:
        path = Path(settings["controllerRaftSecretFile"]).parent / "controller.conf"
        path.write_bytes(properties.dump(settings))
        command += ["-c", str(path)]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**clean_environment(), **(environment or {})},
    )
    assert SECRET not in ended.stdout + ended.stderr
    return ended


def command(
    arguments: Sequence[str], capsys: pytest.CaptureFixture[str], settings: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command that starts nothing: in this process, which saves a second."""
    if settings is not None:
        path = Path(settings["controllerStorePath"]).with_name("controller.conf")
        path.write_bytes(properties.dump(settings))
        arguments = [*arguments, "-c", str(path)]
    try:
        code = __main__.main(arguments)
    except SystemExit as error:
        code = int(error.code or 0)
    written = capsys.readouterr()
    assert SECRET not in written.out + written.err
    return code, written.out, written.err


def test_version_of_the_real_command() -> None:
    ended = controller("--version")
    assert (ended.returncode, ended.stdout.split()[0], ended.stderr) == (0, "rocketmq-controller", "")


def test_help_and_wrong_options(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command(["--help"], capsys)
    assert code == 0
    assert all(word in out for word in ("-c", "-p", "--version", "ROCKETMQ_<KEY>"))
    code, _, err = command(["--no-such-option"], capsys)
    assert code == 2
    assert "--no-such-option" in err


def test_print_config_prints_every_key_and_the_environment_wins(
    settings: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETMQ_MAX_CONNECTIONS", "77")
    monkeypatch.setenv("ROCKETMQ_brokerSuspectTimeoutMs", "1500")
    code, out, err = command(["-p"], capsys, {**settings, "maxConnections": "55"})
    assert (code, err) == (0, "")
    printed = properties.parse(out.encode())
    assert settings.items() <= printed.items()
    assert (printed["maxConnections"], printed["brokerSuspectTimeoutMs"]) == ("77", "1500")
    assert printed["scanInactiveMasterInterval"] == "5000"


def test_configuration_may_come_from_the_environment_alone(
    settings: dict[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in settings.items():
        monkeypatch.setenv(f"ROCKETMQ_{key.upper()}", value)
    code, out, _ = command(["-p"], capsys)
    assert code == 0
    assert settings.items() <= properties.parse(out.encode()).items()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"controllerDLegerPeers": ""}, "controllerDLegerPeers is not set"),
        ({"controllerDLegerPeers": "127.0.0.1:9878"}, "is not of the form id-host:port"),
        ({"controllerDLegerPeers": "n0-127.0.0.1"}, "controllerDLegerPeers"),
        ({"controllerDLegerPeers": "n0-a:1;n0-b:2;n2-c:3"}, "'n0' occurs twice"),
        ({"controllerDLegerPeers": "n0-a:1;n1-a:1;n2-c:3"}, "two members have the same address"),
        ({"controllerDLegerPeers": "n0-a:1;n1-b:2"}, "an even number"),
        ({"controllerDLegerSelfId": "n7"}, "'n7' is not among the ids"),
        ({"controllerDLegerSelfId": ""}, "controllerDLegerSelfId"),
        ({"controllerRaftSecretFile": ""}, "controllerRaftSecretFile is not set"),
        ({"controllerGrpcTlsCertFile": "cert.pem"}, "go together"),
        ({"controllerRaftPort": "5000", "controllerGrpcPort": "5000"}, "two ports are the same"),
        ({"controllerRaftPort": "99999"}, "controllerRaftPort"),
        ({"brokerSuspectTimeoutMs": "soon"}, "brokerSuspectTimeoutMs"),
        ({"enableElectUncleanMaster": "perhaps"}, "enableElectUncleanMaster"),
        ({"controllerType": "jRaft"}, "controllerType"),
        ({"raftHeartbeatIntervalMs": "40"}, "raftElectionTimeoutMs=120 must be more than three times"),
        ({"metricsLabel": "no colon"}, "metricsLabel"),
    ],
)
def test_a_wrong_key_is_exit_2_and_named(
    settings: dict[str, str], changes: dict[str, str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = command([], capsys, {**settings, **changes})
    assert (code, out) == (2, "")
    assert words in err
    assert len(err.splitlines()) == 1


def test_a_configuration_file_that_is_not_there_is_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = command(["-c", "/nowhere.conf"], capsys)
    assert code == 2
    assert "/nowhere.conf" in err


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file"), (b"short", "at least 16"), ("folder", "Is a directory")],
)
def test_a_secret_that_cannot_be_used_is_exit_2(
    settings: dict[str, str], content: bytes | str | None, words: str
) -> None:
    path = Path(settings["controllerRaftSecretFile"]).with_name("other.secret")
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.mkdir()
    ended = controller(environment={"ROCKETMQ_controllerRaftSecretFile": str(path)}, settings=settings)
    assert ended.returncode == 2
    refused = [line for line in map(json.loads, ended.stderr.splitlines()) if line["level"] == "error"]
    assert len(refused) == 1
    assert words in refused[0]["reason"]
    assert "secret" in refused[0]["reason"].lower()
    assert not Path(settings["controllerStorePath"]).exists()


def test_a_secret_that_may_not_be_read_is_exit_2(settings: dict[str, str]) -> None:
    Path(settings["controllerRaftSecretFile"]).chmod(0)
    ended = controller(settings=settings, under=PERMISSIONS_COUNT)
    assert ended.returncode == 2
    assert "Permission denied" in ended.stderr


@pytest.mark.parametrize("name", ["remoting", "raft", "grpc", "metrics"])
def test_a_port_that_is_taken_is_exit_3(settings: dict[str, str], name: str) -> None:
    base = int(settings["metricsPromExporterPort"]) - 3
    port = base + ["remoting", "raft", "grpc", "metrics"].index(name)
    with socket.create_server((HOST, port)):
        ended = controller(settings=settings)
    assert ended.returncode == 3
    taken = [line for line in map(json.loads, ended.stderr.splitlines()) if line["level"] == "error"]
    assert taken
    assert str(port) in taken[0]["reason"]
    assert "Traceback" not in ended.stderr


def test_a_store_folder_that_cannot_be_made_is_exit_1(settings: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    ended = controller(settings={**settings, "controllerStorePath": str(tmp_path / "file" / "store")})
    assert ended.returncode == 1
    assert str(tmp_path / "file" / "store") in ended.stderr
    assert "Traceback" not in ended.stderr


def test_unknown_keys_are_reported_and_a_second_process_on_the_store_is_exit_1(tmp_path: Path, ports: PortPool) -> None:
    config = {"brokerIP1": "10.0.0.1", "controllerDLegerPeer": "typo"}
    with ControllerCluster(tmp_path, ports=ports, members=1, config=config) as cluster:
        cluster.start()
        cluster.wait_ready()
        for key in config:
            wait_until(
                lambda key=key: logged(cluster["n0"], "configuration key is not known and ignored", key=key), key
            )
        port = ports.block()
        second = {
            **cluster.settings("n0"),
            "controllerDLegerPeers": f"n0-{HOST}:{port}",
            "controllerRaftPort": str(port + 1),
            "controllerGrpcPort": str(port + 2),
            "metricsPromExporterPort": str(port + 3),
        }
        ended = controller(settings=second)
        assert ended.returncode == 1
        assert "another process uses this store" in ended.stderr
        assert cluster["n0"].decides()
        secret = (tmp_path / "raft.secret").read_text()
        assert secret not in cluster["n0"].output()
        assert secret not in cluster["n0"].http("/metrics")[1]
        assert cluster["n0"].stop() == 0


def test_a_killed_process_leaves_no_lock_behind(tmp_path: Path, ports: PortPool) -> None:
    with ControllerCluster(tmp_path, ports=ports, members=1) as cluster:
        cluster.start()
        cluster.wait_ready()
        cluster["n0"].kill9()
        cluster.start()
        cluster.wait_ready()
