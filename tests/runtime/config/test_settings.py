"""Configuration: files in Java's form, the environment over them, and refusals that name the key."""

import json
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
        build_settings(Sample, {"brokerName": "0.0\0.0.0"})
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


@pytest.mark.parametrize("encoding", ["gbk", "utf-8", "utf-8-sig", "shift_jis"])
def test_bytes_without_meaning_change_nothing(tmp_path: Path, encoding: str) -> None:
    """Comments, unread keys and byte order marks, in whatever encoding an editor wrote them."""
    text = "# 日本\r\nbrokerName = broker-a \r\ninSyncReplicas: 3\t\r\n日本=日本\r\n! 日本\rotherKey=日本\r\n"
    (tmp_path / "x.conf").write_bytes(text.encode(encoding))
    loaded = build_settings(Sample, read_properties_file(tmp_path / "x.conf"))
    assert loaded.settings == Sample(broker_name="broker-a", inSyncReplicas=3)
    assert len(loaded.unknown_keys) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("inSyncReplicas=1\n# 2\ninSyncReplicas=three", r"x\.conf line 3: inSyncReplicas='three': Expected `int`"),
        ("brokerName=a\ninSyncReplicas=2 # two", r"x\.conf line 2: inSyncReplicas='2 # two'"),
        ("brokerName=a\ninSyncReplicas", r"x\.conf line 2: inSyncReplicas=''"),
        ("enableIt=1", r"x\.conf line 1: enableIt='1': Expected `bool`"),
        ("\n\naclEnable=true", r"x\.conf line 3: aclEnable=true"),
        ("brokerName=a\\u0000b", r"x\.conf line 1: brokerName: .* NUL"),
    ],
)
def test_a_wrong_value_is_refused_with_file_line_and_key(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "x.conf").write_text(text)
    with pytest.raises(SettingsError, match=says) as refused:
        build_settings(Sample, read_properties_file(tmp_path / "x.conf"))
    assert "\n" not in str(refused.value)


def test_the_last_writer_of_a_wrong_value_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.conf").write_text("inSyncReplicas=three\n")
    file, environment = read_properties_file(tmp_path / "x.conf"), {"ROCKETMQ_IN_SYNC_REPLICAS": "four"}
    with pytest.raises(SettingsError, match=r"^ROCKETMQ_IN_SYNC_REPLICAS: inSyncReplicas='four'"):
        build_settings(Sample, file, from_environment(Sample, environment))
    with pytest.raises(SettingsError, match=r"^inSyncReplicas='five'"):
        build_settings(Sample, file, {"inSyncReplicas": "five"})
    (tmp_path / "x.conf").write_text("isAsyncLearner=maybe\n")
    with pytest.raises(SettingsError, match=r"x\.conf line 1: asyncLearner='maybe'"):
        build_settings(Learner, read_properties_file(tmp_path / "x.conf"))


class Kinds(Settings, frozen=True):
    whole: int = 1
    part: float = 0.5
    switch: bool = False
    name: str = ""


VALUES: list[tuple[str, str, str, str, str]] = json.loads(
    (Path(__file__).parents[2] / "golden/properties/values.json").read_text()
)


@pytest.mark.parametrize(("text", "_int", "whole", "part", "switch"), VALUES)
def test_a_value_is_javas_or_refused(text: str, _int: str, whole: str, part: str, switch: str) -> None:
    """Blanks around a value do not count; to Java they make a number its default, and `true` false."""
    bare = text == text.strip()
    assert _read("whole", text) == (int(whole) if whole != "refused" else None) or not bare
    assert _read("part", text) == (float(part) if part != "refused" else None) or not bare
    assert _read("switch", text) in ({"true": True}.get(switch, False), None) or not bare
    assert _read("name", text) == text.strip()


@pytest.mark.parametrize(("text", "value"), [("TRUE", True), ("tRuE ", True), (" false", False), ("False", False)])
def test_booleans_are_words(text: str, *, value: bool) -> None:
    assert _read("switch", text) is value


def _read(key: str, text: str) -> object:
    """None: refused."""
    try:
        return getattr(build_settings(Kinds, {key: text}).settings, key)
    except SettingsError:
        return None


def test_a_value_that_java_reads_otherwise_is_reported(tmp_path: Path) -> None:
    text = "controllerAddr=a:1\nstorePathRootDir=/日本\nstorePathCommitLog=/\\u65e5\\u672c\n"
    (tmp_path / "x.conf").write_bytes(text.encode())
    loaded = build_settings(SidecarSettings, read_properties_file(tmp_path / "x.conf"))
    with capture_logs() as lines:
        loaded.report("x.conf")
    assert [(line["key"], line["write"]) for line in lines] == [("storePathRootDir", "/\\u65e5\\u672c")]
    assert loaded.settings.store_path_commit_log == "/日本"


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
