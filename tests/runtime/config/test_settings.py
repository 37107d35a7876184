"""Configuration: files in Java's form, the environment over them, and refusals that name the key."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rocketmq_runtime.config.settings import (
    SettingsError,
    build_settings,
    from_environment,
    read_properties_file,
    to_text_values,
)
from rocketmq_settings.declare import Settings
from rocketmq_sidecar.settings import SidecarSettings


class Sample(Settings, frozen=True):
    broker_name: str = "b"
    inSyncReplicas: int = 1  # noqa: N815 - a key that is camelCase already
    enable_it: bool = False
    maybe: str | None = None


def test_later_layers_win_and_unknown_keys_are_reported() -> None:
    loaded = build_settings(Sample, {"brokerName": "x", "listenPort": "1"}, {"brokerName": "y", "enableIt": "true"})
    assert loaded.settings == Sample(broker_name="y", enable_it=True)
    assert loaded.unknown_keys == ("listenPort",)


@pytest.mark.parametrize(("key", "value"), [("inSyncReplicas", "three"), ("inSyncReplicas", ""), ("enableIt", "maybe")])
def test_a_wrong_value_is_refused_with_its_key(key: str, value: str) -> None:
    with pytest.raises(SettingsError, match=key):
        build_settings(Sample, {key: value})


def test_a_nul_is_refused_with_its_key() -> None:
    """As an address or a path it would end the process with a traceback."""
    with pytest.raises(SettingsError, match=r"brokerName: .* NUL"):
        build_settings(Sample, {"brokerName": "0.0.0.0\0"})
    assert build_settings(Sample, {"listenPort": "\0"}).unknown_keys == ("listenPort",)


def test_values_are_taken_without_the_blanks_around_them() -> None:
    assert build_settings(Sample, {"inSyncReplicas": " 2 "}).settings.inSyncReplicas == 2


@pytest.mark.parametrize("variable", ["ROCKETMQ_brokerName", "ROCKETMQ_BROKERNAME", "ROCKETMQ_BROKER_NAME"])
def test_the_environment_names_keys_in_any_case(variable: str) -> None:
    assert from_environment(Sample, {variable: "z"}) == {"brokerName": "z"}


class Learner(Settings, frozen=True):
    async_learner: bool = False


def test_names_that_the_design_documents_give_a_key_are_taken_too() -> None:
    loaded = build_settings(Learner, {"isAsyncLearner": "true"})
    assert (loaded.settings.async_learner, loaded.unknown_keys) == (True, ())
    assert not build_settings(Learner, {"isAsyncLearner": "true", "asyncLearner": "false"}).settings.async_learner
    assert not build_settings(Learner, {"asyncLearner": "true"}, {"isAsyncLearner": "false"}).settings.async_learner
    assert from_environment(Learner, {"ROCKETMQ_IS_ASYNC_LEARNER": "true"}) == {"asyncLearner": "true"}
    assert build_settings(Sample, {"isAsyncLearner": "true"}).unknown_keys == ("isAsyncLearner",)
    addresses = build_settings(SidecarSettings, {"controllerAddress": "a:1;b:2"}).settings.controllers
    assert addresses == ("a:1", "b:2")


def test_a_key_without_effect_is_explained() -> None:
    loaded = build_settings(SidecarSettings, {"controllerAddr": "a:1", "haMaxGapNotInSync": "5", "other": "1"})
    with capture_logs() as lines:
        loaded.report("broker.conf")
    assert [(line["event"], line["key"]) for line in lines] == [
        ("configuration key is not known and ignored", "other"),
        ("configuration key has no effect", "haMaxGapNotInSync"),
    ]
    assert "haMaxTimeSlaveNotCatchup" in lines[1]["because"]


def test_other_variables_with_the_prefix_are_left_alone() -> None:
    assert from_environment(Sample, {"ROCKETMQ_CONTROLLER_SERVICE_HOST": "10.0.0.1", "BROKER_NAME": "no"}) == {}


def test_a_file_that_is_missing_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.conf"):
        read_properties_file(tmp_path / "nowhere.conf")


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.conf").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match=r"x\.conf"):
        read_properties_file(tmp_path / "x.conf")


def test_text_values_are_sorted_and_javas() -> None:
    assert list(to_text_values(Sample(enable_it=True)).items()) == [
        ("brokerName", "b"),
        ("enableIt", "true"),
        ("inSyncReplicas", "1"),
    ]


class BesideJava(Settings, frozen=True):
    @property
    def beside_java_broker(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("aclEnable", "true"),
        ("authenticationEnabled", " TRUE "),
        ("authorizationEnabled", "true"),
        ("tlsMode", "enforcing"),
        ("tls.server.mode", "enforcing"),
        ("tls.server.need.client.auth", "require"),
        ("useTLS", "true"),
    ],
)
def test_a_promised_protection_that_is_not_there_is_refused(key: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"{key}={value.strip()}: there is no such protection.*ignoreSecurityKeys"):
        build_settings(Sample, {"brokerName": "b", key: value})
    assert build_settings(Sample, {key: value, "ignoreSecurityKeys": "true"}).unknown_keys == (key,)
    assert build_settings(BesideJava, {key: value}).unknown_keys == (key,)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("aclEnable", "false"),
        ("authenticationEnabled", ""),
        ("tlsMode", "permissive"),
        ("tls.server.mode", "disabled"),
        ("tls.server.need.client.auth", "optional"),
        ("authenticationProvider", "DefaultAuthenticationProvider"),
    ],
)
def test_security_keys_that_switch_nothing_on_are_reported_only(key: str, value: str) -> None:
    assert build_settings(Sample, {key: value}).unknown_keys == (key,)


def test_a_promise_of_the_environment_counts() -> None:
    assert from_environment(Sample, {"ROCKETMQ_ACL_ENABLE": "true"}) == {"aclEnable": "true"}
    with pytest.raises(SettingsError, match="aclEnable"):
        build_settings(Sample, {}, {"aclEnable": "true"})
    assert build_settings(Sample, {"aclEnable": "true"}, {"aclEnable": "false"}).unknown_keys == ("aclEnable",)


class HasAcl(Settings, frozen=True):
    acl_enable: bool = False


def test_a_protection_that_is_there_is_no_empty_promise() -> None:
    assert build_settings(HasAcl, {"aclEnable": "true"}).settings.acl_enable
