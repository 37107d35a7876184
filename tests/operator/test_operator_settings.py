"""The operator's settings, and what its command line says of them."""

from typing import NoReturn

import pytest
from structlog.testing import capture_logs

from rocketmq_formats import properties
from rocketmq_operator.kubernetes.kube import UnavailableError
from rocketmq_operator.main import main
from rocketmq_operator.settings import OperatorSettings, load
from rocketmq_runtime import logs
from rocketmq_runtime.command_line import EXIT_FATAL, EXIT_USAGE
from rocketmq_runtime.config.settings import SettingsError
from rocketmq_runtime.version import __version__
from rocketmq_settings.operator import OperatorKeys
from rocketmq_settings.table import keys


def test_defaults_are_enough() -> None:
    loaded = load({"PATH": "/bin", "ROCKETMQ_HA_SERVICE_HOST": "10.0.0.1"})
    assert loaded.unknown_keys == ()
    settings = loaded.settings
    assert settings == OperatorSettings()
    assert settings.watched == ()
    assert settings.tag == __version__
    assert settings.holder


def test_every_variable_is_read() -> None:
    loaded = load(
        {
            "OPERATOR_NAMESPACES": " a, b,,a ",
            "OPERATOR_NAMESPACE": "ops",
            "OPERATOR_POD_NAME": "operator-0",
            "OPERATOR_RESYNC_SECONDS": "7.5",
            "OPERATOR_NETWORK_POLICIES": "false",
            "OPERATOR_FIXED_IDS": "false",
            "ROCKETMQ_HA_IMAGE_REPOSITORY": "registry.example/rmq",
            "ROCKETMQ_HA_IMAGE_TAG": "1.2",
            "OPERATOR_LOG_LEVEL": "",
        }
    )
    assert loaded.unknown_keys == ()
    settings = loaded.settings
    assert settings.watched == ("a", "b")
    assert (settings.namespace, settings.holder, settings.resync_seconds) == ("ops", "operator-0", 7.5)
    assert (settings.image_repository, settings.tag) == ("registry.example/rmq", "1.2")
    assert not settings.network_policies
    assert not settings.fixed_ids
    assert settings.log_level == "info"


def test_unknown_variables_are_ignored_and_named() -> None:
    loaded = load({"OPERATOR_WORKER": "9", "ROCKETMQ_HA_IMAGE_TAGS": "1.2", "OPERATOR_NOTHING": ""})
    assert loaded.settings == OperatorSettings()
    assert loaded.unknown_keys == ("OPERATOR_WORKER", "ROCKETMQ_HA_IMAGE_TAGS")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OPERATOR_WORKERS", "zero"),
        ("OPERATOR_WORKERS", "0"),
        ("OPERATOR_HEALTH_PORT", "70000"),
        ("OPERATOR_LOG_LEVEL", "loud"),
        ("OPERATOR_RESYNC_SECONDS", "-1"),
        ("OPERATOR_RESYNC_SECONDS", "0"),
        ("OPERATOR_NETWORK_POLICIES", "perhaps"),
    ],
)
def test_a_wrong_value_is_refused_with_its_variable(variable: str, value: str) -> None:
    with pytest.raises(SettingsError, match=variable):
        load({variable: value})


@pytest.mark.parametrize("command", ["run", "release-finalizers", "--print-config"])
def test_the_command_ends_with_two_when_a_setting_is_wrong(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPERATOR_WORKERS", "zero")
    assert main([command]) == EXIT_USAGE
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert line.startswith("rocketmq-operator: ")
    assert "OPERATOR_WORKERS" in line
    assert out == ""


def test_print_config_prints_every_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPERATOR_WORKERS", "9")
    monkeypatch.setenv("OPERATOR_NETWORK_POLICIES", "false")
    for arguments in (["-p"], ["run", "--print-config"]):
        assert main(arguments) == 0
        out, err = capsys.readouterr()
        assert err == ""
        printed = properties.parse(out.encode())
        assert list(printed) == sorted(keys(OperatorKeys))
        assert (printed["OPERATOR_WORKERS"], printed["OPERATOR_NETWORK_POLICIES"]) == ("9", "false")
        assert printed["OPERATOR_LEASE_SECONDS"] == "30.0"
        assert load(printed).settings == load().settings


def test_unknown_variables_are_reported_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def no_cluster() -> NoReturn:
        raise UnavailableError("credentials", 0, "there is no cluster")

    monkeypatch.setattr("rocketmq_operator.main.load_configuration", no_cluster)
    monkeypatch.setattr(logs, "configure", lambda *_: None)
    monkeypatch.setenv("OPERATOR_WORKER", "9")
    with capture_logs() as written:
        assert main(["release-finalizers"]) == EXIT_FATAL
    first, last = written
    assert first["event"] == "configuration key is not known and ignored"
    assert (first["key"], first["file"]) == ("OPERATOR_WORKER", "the environment")
    assert last["event"] == "cannot start"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--no-such-option"], "--no-such-option"),
        (["stop"], "stop"),
        (["run", "release-finalizers"], "release-finalizers"),
        (["-c", "operator.conf"], "operator.conf"),
    ],
)
def test_wrong_arguments_are_one_line(arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == EXIT_USAGE
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rocketmq-operator: ")
    assert word in line


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for argument in ("--version", "--help"):
        with pytest.raises(SystemExit) as ended:
            main([argument])
        assert ended.value.code == 0
    said = capsys.readouterr().out
    assert f"rocketmq-operator {__version__}\n" in said
    assert "release-finalizers" in said


def test_the_help_begins_with_what_the_operator_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith(
        "usage: rocketmq-operator [-h] [-p] [--version] [{run,release-finalizers}] "
        "Turns BrokerGroup, ControllerCluster and NameServer resources into running processes. "
    )
