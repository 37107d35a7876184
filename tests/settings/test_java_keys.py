"""Every key of 5.3.3's configuration classes has a verdict, and honoured ones have Java's type and range."""

import json
from pathlib import Path

import pytest
import structlog.testing

from rocketmq_broker.settings import BrokerSettings
from rocketmq_controller.settings import ControllerSettings
from rocketmq_namesrv.settings import NameServerSettings
from rocketmq_resources.decoding import SpecError
from rocketmq_resources.reserved_keys import check_promises
from rocketmq_runtime.config.settings import SettingsError, build_settings, report_unknown
from rocketmq_settings.java_keys import ACCEPTED_VALUES, PROCESSES, READERS, explained, verdict
from rocketmq_settings.table import rows
from tests.paths import ROOT

Key = tuple[str, str, str, str | None]
RECORDED = json.loads((ROOT / "tests/golden/keys/java_keys.json").read_text())
KEYS: list[Key] = [(owner, key, kind, default) for owner, key, kind, default in RECORDED]
TYPES = {"boolean": bool, "int": int, "long": int, "double": float, "String": str}
ELSEWHERE = {
    (
        "BrokerConfig",
        "brokerNotActiveTimeoutMillis",
    ): "0 stands for Java's 10 s, which count with an acting master only",
    ("BrokerConfig", "enableControllerMode"): "groups fail over by default",
    ("BrokerConfig", "listenPort"): "the port that BrokerStartup.java sets before it reads the file",
    ("NettyServerConfig", "listenPort"): "the port that BrokerStartup.java sets before it reads the file",
    ("BrokerConfig", "metricsPromExporterPort"): "a controller on the same host has Java's 5557",
    ("MessageStoreConfig", "haListenPort"): "0 stands for listenPort + 1",
    ("MessageStoreConfig", "storePathCommitLog"): "the same",
    ("MessageStoreConfig", "storePathEpochFile"): "the same",
    ("MessageStoreConfig", "storePathBrokerIdentity"): "the same",
    ("ControllerConfig", "configStorePath"): "beside the controller's other files",
}
"""Honoured keys whose default is not Java's, with the reason."""


def test_the_verdicts_are_on_the_keys_that_java_has() -> None:
    assert len(KEYS) == len({row[:2] for row in KEYS}) == 502
    assert {owner for owner, *_ in KEYS} == READERS.keys()
    for owner, key, *_ in KEYS:
        assert verdict(owner, key).text, (owner, key)
    assert explained() <= {(owner, key) for owner, key, *_ in KEYS}


def test_a_key_that_is_declared_is_not_explained_away() -> None:
    declared = {name: {row.key for row in rows(spec)} for name, spec in PROCESSES.items()}
    for owner, key in explained():
        assert not any(key in declared[name] for name in READERS[owner]), (owner, key)


@pytest.mark.parametrize("row", [row for row in KEYS if verdict(row[0], row[1]).honoured], ids=lambda row: row[1])
def test_an_honoured_key_has_java_s_type_and_default(row: Key) -> None:
    owner, key, kind, default = row
    ours = verdict(owner, key).honoured
    assert ours is not None
    assert type(ours.value) is TYPES[kind]
    if default is None:
        return
    if type(ours.value) is int:
        assert ours.least is None or ours.least <= int(default)
        assert ours.most is None or int(default) <= ours.most
    same = str(ours.value).lower() == default.lower()
    assert same != ((owner, key) in ELSEWHERE), f"{default} in Java, {ours.value} here"


def test_a_java_controller_s_address_and_read_events_count() -> None:
    keys = {
        "controllerDLegerPeers": "n0-127.0.0.1:9878",
        "controllerDLegerSelfId": "n0",
        "controllerRaftSecretFile": "/secret",
    }
    built = build_settings(ControllerSettings, {**keys, "bindAddress": "127.0.0.1", "processReadEvent": "true"})
    assert (built.settings.controller_listen_host, built.settings.is_process_read_event) == ("127.0.0.1", True)
    assert not built.unknown_keys
    both = {**keys, "bindAddress": "127.0.0.1", "controllerListenHost": "::1"}
    assert build_settings(ControllerSettings, both).settings.controller_listen_host == "::1"
    assert build_settings(NameServerSettings, {"bindAddress": "::1"}).settings.bind_address == "::1"


@pytest.mark.parametrize("key", ACCEPTED_VALUES)
def test_a_store_that_is_not_there_is_refused(key: str, tmp_path: Path) -> None:
    only, why = ACCEPTED_VALUES[key]
    for value in ("", only, only.upper()):
        build_settings(BrokerSettings, {"brokerName": "b", key: value})
        check_promises({key: value})
    with pytest.raises(SettingsError, match=f"{key}=true: {why}"):
        build_settings(BrokerSettings, {"brokerName": "b", key: "true"})
    with pytest.raises(SpecError, match=why):
        check_promises({key: "true"})


def test_java_s_keys_are_reported_with_their_reason() -> None:
    with structlog.testing.capture_logs() as logs:
        report_unknown(("sendMessageThreadPoolNums", "myOwnKey"), "broker.conf")
    assert [(line["event"], line["key"], "event loop" in line.get("because", "")) for line in logs] == [
        ("configuration key has no effect", "sendMessageThreadPoolNums", True),
        ("configuration key is not known and ignored", "myOwnKey", False),
    ]
