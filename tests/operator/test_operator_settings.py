"""The operator's settings, and what its command line says of them."""

import pytest

from rocketmq_operator.main import main
from rocketmq_operator.settings import OperatorSettings, load
from rocketmq_runtime.config.settings import SettingsError
from rocketmq_runtime.version import __version__


def test_defaults_are_enough() -> None:
    settings = load({})
    assert settings == OperatorSettings()
    assert settings.watched == ()
    assert settings.image_tag == __version__
    assert settings.holder


def test_every_variable_is_read() -> None:
    settings = load(
        {
            "OPERATOR_NAMESPACES": " a, b,,a ",
            "OPERATOR_NAMESPACE": "ops",
            "OPERATOR_POD_NAME": "operator-0",
            "OPERATOR_RESYNC_SECONDS": "7.5",
            "OPERATOR_NETWORK_POLICIES": "false",
            "ROCKETMQ_HA_IMAGE_REPOSITORY": "registry.example/rmq",
            "ROCKETMQ_HA_IMAGE_TAG": "1.2",
            "OPERATOR_LOG_LEVEL": "",
            "OPERATOR_UNHEARD_OF": "ignored",
        }
    )
    assert settings.watched == ("a", "b")
    assert (settings.namespace, settings.holder, settings.resync_seconds) == ("ops", "operator-0", 7.5)
    assert (settings.image_repository, settings.image_tag) == ("registry.example/rmq", "1.2")
    assert not settings.network_policies
    assert settings.log_level == "info"


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("OPERATOR_WORKERS", "zero"),
        ("OPERATOR_WORKERS", "0"),
        ("OPERATOR_HEALTH_PORT", "70000"),
        ("OPERATOR_LOG_LEVEL", "loud"),
        ("OPERATOR_RESYNC_SECONDS", "-1"),
    ],
)
def test_a_wrong_value_is_refused_with_its_variable(variable: str, value: str) -> None:
    with pytest.raises(SettingsError, match=variable):
        load({variable: value})


def test_the_command_ends_with_two_when_a_setting_is_wrong(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPERATOR_WORKERS", "zero")
    with pytest.raises(SystemExit) as ended:
        main(["run"])
    assert ended.value.code == 2
    assert "OPERATOR_WORKERS" in capsys.readouterr().err


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for argument in ("--version", "--help"):
        with pytest.raises(SystemExit) as ended:
            main([argument])
        assert ended.value.code == 0
    said = capsys.readouterr().out
    assert __version__ in said
    assert "release-finalizers" in said


def test_the_help_begins_with_what_the_operator_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    usage, description, *_ = capsys.readouterr().out.split("\n\n")
    assert usage.startswith("usage: rocketmq-operator ")
    assert " ".join(description.split()) == (
        "Turns BrokerGroup, ControllerCluster and NameServer resources into running processes."
    )
