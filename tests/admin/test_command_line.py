"""Arguments, exit codes and errors: one line each, never a traceback."""

import asyncio
import json
import signal
import subprocess
import sys

import pytest

from rocketmq_admin import __main__, cli, controllers
from rocketmq_formats.remoting.command import RemotingCommand
from tests.admin.fake_cluster import BROKERS, CONTROLLERS, N0, N1, N2, NAME_SERVER, FakeCluster, answer, recorded
from tests.command_lines import Tool

COMMANDS = [info.name for info in cli.app.registered_commands if info.name]
ELECT = ("electMaster", "-c", "DefaultCluster", "-bn", "broker-a", "-b", "2")


def test_the_commands_are_mqadmins_and_three_of_ours() -> None:
    assert sorted(COMMANDS) == [
        "addControllerMember",
        "cleanBrokerMetadata",
        "electMaster",
        "getBrokerEpoch",
        "getControllerConfig",
        "getControllerMembers",
        "getControllerMetaData",
        "getSyncStateSet",
        "removeControllerMember",
        "updateControllerConfig",
    ]


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_command_has_help_with_an_example(admin: Tool, name: str, flag: str) -> None:
    outcome = admin(name, flag)
    assert (outcome.code, outcome.err) == (0, "")
    assert f"Example: rocketmq-admin {name} -" in outcome.out
    assert admin("help", name.upper()).out == outcome.out


def test_overview_and_version(admin: Tool) -> None:
    overview = admin()
    assert overview.code == 0
    assert all(name in overview.out for name in COMMANDS)
    assert admin("help").out == admin("--help").out == overview.out
    assert admin("--version").out.startswith("rocketmq-admin ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nope",), "No such command 'nope'."),
        (("electMaster", "-a", N1, "-bn", "b", "-c", "c"), "Missing option '-b'"),
        (("electMaster", "-a", N1, "-bn", "b", "-c", "c", "-b", "one"), "Invalid value for '-b'"),
        (("electMaster", "-a", N1, "-bn", " ", "-c", "c", "-b", "1"), "-bn: must not be empty"),
        (("electMaster", "-a", N1, "--what"), "No such option: --what"),
        (("getControllerMetaData", "-a", "localhost"), "-a: not an address of the form host:port: 'localhost'"),
        (("getControllerMetaData", "-a", " ; "), "-a: ' ; ' holds no address"),
        (("getControllerMetaData", "-a", N1, "-o", "xml"), "Invalid value for '-o'"),
        (("getControllerMetaData", "-a", N1, "--timeout", "0"), "Invalid value for '--timeout'"),
        (("getSyncStateSet", "-a", N1), "give a broker group (-b) or a cluster (-c)"),
        (("getSyncStateSet", "-a", N1, "-c", "c"), "give -n host:port or set NAMESRV_ADDR"),
        (("getSyncStateSet", "-a", N1, "-b", "b", "-i", "0"), "Invalid value for '-i'"),
        (("getBrokerEpoch", "-b", "b"), "give -n host:port or set NAMESRV_ADDR"),
        (("cleanBrokerMetadata", "-a", N1, "-bn", "b"), "-c is needed unless"),
        (("cleanBrokerMetadata", "-a", N1, "-bn", "b", "-c", "c", "-b", "1;x"), "broker ids look like 1;2;3"),
        (("updateControllerConfig", "-a", N1, "-k", "", "-v", "1"), "-k: must not be empty"),
    ],
)
def test_wrong_usage(cluster: FakeCluster, admin: Tool, arguments: tuple[str, ...], said: str) -> None:
    outcome = admin(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
    assert outcome.err.count("\n") == 1
    assert not any(process.requests for process in cluster.processes.values())


def test_name_servers_come_from_the_environment_too(
    cluster: FakeCluster, admin: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.processes[N1].scripts[1006] = recorded("1006-get-sync-state-data-response")
    monkeypatch.setenv("NAMESRV_ADDR", cluster.real(f"127.0.0.1:1;{NAME_SERVER}"))
    assert admin("getSyncStateSet", "-a", N1, "-c", "DefaultCluster").code == 0
    outcome = admin("getSyncStateSet", "-a", N1, "-c", "DefaultCluster", "-n", "127.0.0.1:1")
    assert (outcome.code, outcome.err) == (3, "rocketmq-admin: cannot connect to 127.0.0.1:1: Connection refused\n")


def test_dead_controllers_are_passed_over(cluster: FakeCluster, admin: Tool) -> None:
    cluster.kill(N0, N2)
    outcome = admin("getControllerMetaData", "-a", ";".join(CONTROLLERS), "-o", "json")
    assert outcome.code == 0
    assert json.loads(outcome.out)["controllerLeaderId"] == "n1"
    cluster.kill(N1)
    outcome = admin("getControllerMetaData", "-a", ";".join(CONTROLLERS))
    assert (outcome.code, outcome.out) == (3, "")
    assert outcome.err.count("\n") == 1


def test_a_silent_leader(cluster: FakeCluster, admin: Tool) -> None:
    outcome = admin(*ELECT, "-a", N0, "--timeout", "1")
    assert (outcome.code, outcome.err) == (3, f"rocketmq-admin: no answer from {N1} within 1 s\n")


@pytest.mark.parametrize("body", [b"", b"[1]", b"{"])
def test_answers_that_cannot_be_read(cluster: FakeCluster, admin: Tool, body: bytes) -> None:
    cluster.processes[N1].scripts[1006] = answer(body=body)
    outcome = admin("getSyncStateSet", "-a", N1, "-b", "broker-a")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith(f"rocketmq-admin: {N1} sent an answer that cannot be read: ")
    assert outcome.err.count("\n") == 1


def test_unknown_names(cluster: FakeCluster, admin: Tool) -> None:
    for target in (("-b", "nobody"), ("-c", "nothing")):
        outcome = admin("getBrokerEpoch", "-n", NAME_SERVER, *target)
        assert (outcome.code, outcome.out) == (1, "")
        assert target[1] in outcome.err


def test_a_dead_broker_does_not_hide_the_others(cluster: FakeCluster, admin: Tool) -> None:
    sample = recorded("1007-get-broker-epoch-cache-response")
    for address in BROKERS.values():
        cluster.processes[address].scripts[1007] = sample
    cluster.kill(BROKERS[2])
    outcome = admin("getBrokerEpoch", "-n", NAME_SERVER, "-b", "broker-a", "-o", "json")
    assert [broker["brokerAddress"] for broker in json.loads(outcome.out)["brokers"]] == [BROKERS[1], BROKERS[3]]
    assert (outcome.code, outcome.err) == (
        3,
        f"rocketmq-admin: cannot connect to {BROKERS[2]}: Connection refused\n",
    )


def test_a_dead_controller_does_not_hide_the_others_configurations(cluster: FakeCluster, admin: Tool) -> None:
    for address in CONTROLLERS:
        cluster.processes[address].scripts[1010] = answer(body=f"listenPort={address[-4:]}\n".encode())
    cluster.kill(N0)
    outcome = admin("getControllerConfig", "-a", ";".join(CONTROLLERS), "-o", "json")
    assert json.loads(outcome.out) == {
        "controllers": [{"address": address, "config": {"listenPort": address[-4:]}} for address in (N1, N2)]
    }
    assert outcome.code == 3


def test_an_update_is_reported_per_controller(cluster: FakeCluster, admin: Tool) -> None:
    held = {N0: b"key=new", N1: b"other=1", N2: b"key=old"}
    for address, config in held.items():
        cluster.processes[address].scripts |= {1009: answer(), 1010: answer(body=config)}
    outcome = admin("updateControllerConfig", "-a", ";".join(CONTROLLERS), "-k", "key", "-v", "new")
    assert outcome.out == f"update controller config success![{N0}]\nkey : new\n"
    assert outcome.code == 1
    assert outcome.err.splitlines() == [
        f"rocketmq-admin: {N1} has no key key: nothing was set",
        f"rocketmq-admin: {N2} did not take the value: key is old",
    ]


def test_a_repeated_command_outlives_trouble(
    cluster: FakeCluster, admin: Tool, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = recorded("1006-get-sync-state-data-response")
    script = iter([good, answer(1, "down"), good])
    cluster.processes[N1].scripts[1006] = lambda _: next(script)
    pauses: list[float] = []

    async def sleep(seconds: float, sleep: object = asyncio.sleep) -> None:
        if seconds == 7:
            pauses.append(seconds)
            if len(pauses) == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(asyncio, "sleep", sleep)
    outcome = admin("getSyncStateSet", "-a", N1, "-b", "broker-a", "-i", "7", "-o", "json")
    assert outcome.code == 0
    assert len(outcome.out.splitlines()) == 2
    assert outcome.err == f"rocketmq-admin: {N1} refused: SYSTEM_ERROR: CODE: 1  DESC: down\n"


def test_a_bug_is_one_line_too(cluster: FakeCluster, admin: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> RemotingCommand:
        raise KeyError("x")

    monkeypatch.setattr(controllers, "get_first_metadata", fail)
    outcome = admin("getControllerMetaData", "-a", N1)
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("rocketmq-admin: a bug, please report it: ")
    assert outcome.err.endswith("KeyError: 'x'\n")


def repeating(cluster: FakeCluster) -> "subprocess.Popen[str]":
    cluster.processes[N1].scripts[1006] = recorded("1006-get-sync-state-data-response")
    arguments = ["getSyncStateSet", "-a", cluster.real(N1), "-b", "broker-a", "-i", "1", "-o", "json"]
    # Who runs us in the background may have had Ctrl-C ignored, and children inherit that.
    ours = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            [sys.executable, "-m", __main__.__package__, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, ours)


def test_control_c_ends_a_repeated_command_cleanly(cluster: FakeCluster) -> None:
    with repeating(cluster) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    assert all(json.loads(line) for line in rest.splitlines())


def test_a_reader_that_has_enough_ends_it_too(cluster: FakeCluster) -> None:
    with repeating(cluster) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        errors = process.stderr.read()
    assert (process.returncode, errors) == (0, "")
