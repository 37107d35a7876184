"""The command line: what is refused, what is over what, exit codes."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from rocketmq_runtime.config.settings import SettingsError
from rocketmq_verify import cli
from rocketmq_verify.options import Options, WrongUsageError, parse, request_of
from rocketmq_verify.run import EngineKind
from rocketmq_verify.sources.source import SpecError
from tests.verify.history.stores import save_all
from tests.verify.planted.faults import Group

LARGE = ["altair", "pyspark", "kubernetes", "pyarrow", "grpc", "google.protobuf", "pydantic", "typer"]
TWO = ["--replica", "a=/data/a", "--replica", "b=/data/b"]


def parsed(*arguments: str) -> Options:
    options = parse(arguments)
    assert options is not None
    return options


def test_options_over_environment_over_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "verify.conf"
    file.write_text("brokerName=of-file\nrereadDays=5\nchunkSize=2Mi\nreplicas=x=/x;y=sidecar:h:1\n")
    monkeypatch.setenv("ROCKETMQ_REREADDAYS", "2")
    monkeypatch.setenv("ROCKETMQ_FULL", "true")
    options = parsed("--config", str(file), "--group", "said", "--no-structure")
    assert (options.settings.broker_name, options.settings.reread_days, options.settings.full) == ("said", 2, True)
    assert [place.spec for place in options.places] == ["files:/x", "sidecar:h:1"]
    request = request_of(options)
    assert (request.chunk_size, request.structure, request.queues) == (2 << 20, False, True)


def test_replicas_of_both_kinds() -> None:
    options = parsed("--replica", "a=/data/a", "--sidecar", "b=host:10920")
    assert [place.spec for place in options.places] == ["files:/data/a", "sidecar:host:10920"]


def test_a_configured_spark_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    assert request_of(parsed(*TWO)).engine is EngineKind.AUTO
    assert request_of(parsed(*TWO, "--engine", "local", "--master", "local[2]")).engine is EngineKind.LOCAL
    assert request_of(parsed(*TWO, "--master", "local[2]")).engine is EngineKind.SPARK
    monkeypatch.setenv("SPARK_CONF_DIR", "/etc/spark")
    assert request_of(parsed(*TWO)).engine is EngineKind.SPARK


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--replica", "a=/data/a"], "two replicas"),
        (["--ledger", "/data/ledger"], "needs a replica"),
        (["--replica", "a=/data/a", "--replica", "a=/data/b"], "twice"),
        (["--replica", "a=/data/a", "--replica", "b=/data/a/"], "same place"),
        (["--replica", "/data/a", "--replica", "b=/data/b"], "NAME=DIRECTORY"),
        (["--replica", "a=~nouser-of-this/x", "--replica", "b=/data/b"], "~nouser-of-this/x"),
        ([*TWO, "--reread-days", "-1"], "rereadDays"),
        ([*TWO, "--reraed-days", "5"], "No such option"),
        ([*TWO, "--output", "xml"], "'xml' is not one of"),
        ([*TWO, "--engine", "flink"], "'flink' is not one of"),
        ([*TWO, "--chunk-size", "big"], "chunkSize"),
        ([*TWO, "--chunk-size", "5k"], "power of two"),
        ([*TWO, "--tls-cert", "/x"], "go together"),
        ([*TWO, "--config", "/nowhere"], "cannot read"),
    ],
)
def test_what_is_refused(arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((SpecError, SettingsError, WrongUsageError), match=why):
        parse(arguments)
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert why in printed.err


def test_print_config(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--print-config", "--full"]) == 0
    assert "full=true\n" in capsys.readouterr().out


def test_no_log_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-q", "--replica", f"a={tmp_path}/x", "--replica", f"b={tmp_path}/y"]) == 2
    assert "there is no such folder" in capsys.readouterr().err


def linked(store: Path, other: Path) -> Path:
    other.symlink_to(store)
    return other


def hard_links(store: Path, other: Path) -> Path:
    (other / "commitlog").mkdir(parents=True)
    for file in (store / "commitlog").iterdir():
        (other / "commitlog" / file.name).hardlink_to(file)
    return other


def linked_files(store: Path, other: Path) -> Path:
    (other / "commitlog").mkdir(parents=True)
    for file in (store / "commitlog").iterdir():
        (other / "commitlog" / file.name).symlink_to(file)
    return other


@pytest.mark.parametrize(
    "other",
    [
        linked,
        hard_links,
        linked_files,
        lambda store, _: store / "commitlog",
        lambda store, _: f"{store.parent}/./{store.name}",
        lambda store, _: f"{store}/../{store.name}/",
    ],
)
def test_the_same_store_twice_is_refused(
    tmp_path: Path, other: Callable[[Path, Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    (place, *_) = save_all(Group().fill(5), tmp_path)
    again = other(tmp_path / place.name, tmp_path / "again")
    assert cli.main(["-q", "--replica", f"a={place.spec}", "--replica", f"z={again}"]) == 2
    assert "a and z are the same " in capsys.readouterr().err


def test_only_files_of_the_log_make_two_places_one_store(tmp_path: Path) -> None:
    one, other, _ = save_all(Group().fill(5), tmp_path)
    note = tmp_path / "a" / "commitlog" / "note"
    note.touch()
    (tmp_path / "b" / "commitlog" / "note").hardlink_to(note)
    assert len(parsed("--replica", f"a={one.spec}", "--replica", f"b={other.spec}").places) == 2


@pytest.mark.parametrize(
    ("identity", "why"),
    [("C#a#1", "a and b have the same brokerId, 1"), ("C#other#2", "a is of the group C/a, b of C/other")],
)
def test_a_copy_and_another_group_are_refused(
    tmp_path: Path, identity: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other, _ = save_all(Group().fill(5), tmp_path)
    (tmp_path / "b" / "brokerIdentity").write_text(identity)
    assert cli.main(["-q", "--replica", f"a={one.spec}", "--replica", f"b={other.spec}"]) == 2
    assert why in capsys.readouterr().err


def test_executors_get_whole_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = parsed("--replica", "a=one/store", "--replica", "b=files:two")
    assert [place.spec for place in options.places] == [f"files:{tmp_path}/one/store", f"files:{tmp_path}/two"]


def test_one_replica_that_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place, *_) = save_all(Group().fill(5), tmp_path)
    file = tmp_path / "verify.conf"
    file.write_text("patienceSeconds=0.1\n")
    arguments = ["-q", "-c", str(file), "--replica", f"a={place.spec}", "--sidecar", "b=127.0.0.1:1"]
    assert cli.main([*arguments, "-o", "json"]) == 3
    said = json.loads(capsys.readouterr().out)
    assert said["result"] == "unverified"
    assert said["counts"]["unreachable"] == 1


@pytest.mark.processes
@pytest.mark.java
def test_the_whole_command(tmp_path: Path) -> None:
    group = Group().fill()
    bad = group.messages[20]
    places = save_all(group, tmp_path)
    command = [sys.executable, "-m", "rocketmq_verify"]
    for place in places:
        command += ["--replica", f"{place.name}={place.spec}"]
    whole = subprocess.run(
        [*command, "--engine", "spark", "-o", "json"], capture_output=True, text=True, check=False, timeout=100
    )
    assert (whole.returncode, json.loads(whole.stdout)["result"]) == (0, "aligned"), whole.stderr
    assert "comparing" in whole.stderr
    assert "WARN" not in whole.stderr
    group["c"].flip(bad.body_start + 3)
    (tmp_path / "c" / "commitlog").rename(tmp_path / "old")
    data = group["c"].data
    (tmp_path / "c" / "commitlog").mkdir()
    for start in group["c"].log().segments:
        name = f"{start:020d}"
        (tmp_path / "c" / "commitlog" / name).write_bytes(
            bytes(data[start : start + (16 << 10)]).ljust(16 << 10, b"\0")
        )
    report = tmp_path / "report.html"
    flipped = subprocess.run(
        [*command, "--plan", "--report", str(report)], capture_output=True, text=True, check=False, timeout=100
    )
    assert flipped.returncode == 1, flipped.stderr
    assert f"message {bad.queue_offset} of queue 3 of Orders at {bad.offset} is damaged in c" in flipped.stdout
    assert "Plan (nothing was executed):" in flipped.stdout
    assert "s in all, without Spark." in flipped.stdout
    assert report.read_text().startswith("<!doctype html>")


def test_a_small_run_waits_for_no_large_import(tmp_path: Path) -> None:
    """Arrow, gRPC and typer took 0.4 CPU seconds of a run over files, which uses neither Arrow nor gRPC."""
    save_all(Group().fill(), tmp_path)
    arguments = [
        "-q",
        "--engine",
        "local",
        *(part for name in "abc" for part in ("--replica", f"{name}={tmp_path}/{name}")),
    ]
    script = (
        f"import sys; from rocketmq_verify.__main__ import main; code = main({arguments});"
        f"print(code, sorted(set({LARGE}) & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[-1:] == ["0 []"], done.stdout + done.stderr


def test_grpc_is_configured_for_forks_before_it_is_imported() -> None:
    """Else it starts threads in the process that is to become the JVM, which now and then aborts."""
    script = (
        "import os, sys; from rocketmq_verify import __main__ as program; before = 'grpc' in sys.modules;"
        "program.main(['--print-config']); from rocketmq_verify.sources import sidecar_source;"
        "print(before, 'grpc' in sys.modules, os.environ['GRPC_ENABLE_FORK_SUPPORT'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines()[-1:] == ["False True false"], done.stderr


def test_what_an_interrupted_run_waited_for_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[str] = []

    def interrupted(options: Options) -> NoReturn:
        raise KeyboardInterrupt("no executor has started")

    monkeypatch.setattr(cli, "verify", interrupted)
    monkeypatch.setattr(cli, "_publish", lambda options, run, problem, began: told.append(problem))
    assert cli.main(["-q", "--replica", f"a={tmp_path}/x", "--replica", f"b={tmp_path}/y"]) == 130
    assert told == ["interrupted, or not done in time (no executor has started): no verdict"]
    assert "nothing is kept" in capsys.readouterr().err
