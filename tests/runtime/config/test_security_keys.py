"""No process starts open where its file promises a protection; checked at the commands themselves."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from rocketmq_broker.command import run as broker
from rocketmq_controller.__main__ import main as controller
from rocketmq_namesrv.__main__ import main as name_server
from rocketmq_runtime.command_line import EXIT_USAGE
from rocketmq_sidecar.__main__ import main as sidecar

Command = Callable[[Sequence[str]], int]
CONTROLLER = "controllerDLegerPeers=n0-127.0.0.1:9878\ncontrollerDLegerSelfId=n0\ncontrollerRaftSecretFile=/secret\n"
BROKER = "controllerAddr=127.0.0.1:9878\nbrokerIP1=127.0.0.1\n"
COMMANDS = [
    pytest.param(controller, CONTROLLER, id="controller"),
    pytest.param(name_server, "", id="namesrv"),
    pytest.param(broker, BROKER, id="broker"),
    pytest.param(sidecar, BROKER, id="sidecar"),
]


@pytest.mark.parametrize(("command", "config"), COMMANDS)
def test_the_start_is_refused_with_the_key(
    command: Command, config: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "x.conf"
    file.write_text(f"{config}storePathRootDir={tmp_path}\nauthenticationEnabled=true\n")
    assert command(["-c", str(file), "-p"]) == EXIT_USAGE
    assert "authenticationEnabled=true: there is no such protection" in capsys.readouterr().err
    file.write_text(file.read_text() + "ignoreSecurityKeys=true\n")
    assert command(["-c", str(file), "-p"]) == 0


def test_beside_an_official_broker_the_keys_are_that_broker_s(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(f"{BROKER}storePathRootDir={tmp_path}\nauthenticationEnabled=true\nbrokerEngine=apache\n")
    assert sidecar(["-c", str(file), "-p"]) == 0
