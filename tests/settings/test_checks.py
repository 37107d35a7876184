"""Values that could never work are refused at the start by every process that reads them, with file, line and key."""

from pathlib import Path

import pytest

from rocketmq_broker.settings import BrokerSettings
from rocketmq_controller.settings import ControllerSettings
from rocketmq_formats import properties
from rocketmq_namesrv.settings import NameServerSettings
from rocketmq_operator.settings import load
from rocketmq_runtime.config.settings import SettingsError, build_settings, read_properties_file
from rocketmq_settings.declare import Settings
from rocketmq_settings.table import rows
from rocketmq_sidecar.settings import SidecarSettings

PEERS = "n0-127.0.0.1:9878;n1-[::1]:9878;n2-c.example.org:9878"
GOOD: dict[type[Settings], dict[str, str]] = {
    BrokerSettings: {"brokerName": "broker-a", "namesrvAddr": "127.0.0.1:9876; [::1]:9876;; n.example.org:9876 ;"},
    SidecarSettings: {"brokerName": "broker-a", "controllerAddr": "127.0.0.1:9878;[::1]:9878"},
    ControllerSettings: {
        "controllerDLegerPeers": PEERS,
        "controllerDLegerSelfId": "n0",
        "controllerRaftSecretFile": "/run/secret",
    },
    NameServerSettings: {},
}
REPLICA = (BrokerSettings, SidecarSettings)
NAMES = (
    *("zone/broker", "broker a", "名字", "é", "a;b", "a:b", "a,b", "a@b", "a%b", "a|b", "a#b", "a\tb"),
    *(".", ".a", "-a"),
)
LISTS = (
    *("a", "a:0", "a:65536", "a:b", ":9876", "a:1,b:2", "a:1 b:2", "http://a:1", "a:1;b", "300.1.1.1:1", ";", "[a]:1"),
    *("a:1 # one", "名字:1", "1.2.3:1", "::1"),
)
PATHS = (
    *('"/data"', "'/data'", "$HOME/store", "/data/$HOSTNAME", "${user.home}/store", "/data/$(hostname)", "file:/data"),
    *("file:///data", "s3://bucket/x", "D:/store", "D:\\store", "/data\\store", "D:\rocketmqstore", "/a\nb", "/a\x7f"),
)
HOSTS = ("a b", "300.1.1.1", "127.0.0.1:10911", "http://a", "a,b", "[a]")


def cases() -> list[tuple[type[Settings], str, str]]:
    found: list[tuple[type[Settings], str, str]] = []
    for spec in REPLICA:
        found += [(spec, key, name) for key in ("brokerName", "brokerClusterName") for name in NAMES]
        found += [(spec, key, host) for key in ("brokerIP1", "brokerIP2") for host in (*HOSTS, "0.0.0.0", "[::]")]
        found += [(spec, "namesrvAddr", text) for text in LISTS]
        found += [(spec, "bindAddress", host) for host in HOSTS]
        found += [(spec, "brokerName", "a" * 128), (spec, "brokerClusterName", "")]
        found += [(spec, "storePathCommitLog", f"~/store{folder}") for folder in ("", "/config", "/./consumequeue/")]
    found += [(SidecarSettings, "controllerAddr", text) for text in (*LISTS, "")]
    peers = "controllerDLegerPeers"
    found += [(ControllerSettings, peers, f"n0-{text}") for text in LISTS if text not in ("a:1;b", ";")]
    found += [
        (ControllerSettings, peers, text)
        for text in (";", "n0-a:1,n1-b:1,n2-c:1", "n0-0.0.0.0:1", "n0-[::]:1", "n 0-a:1", "n:0-a:1", "-a:1")
    ]
    found += [(spec, row.key, path) for spec in GOOD for row in rows(spec) if row.path for path in PATHS]
    found += [(spec, row.key, "") for spec in GOOD for row in rows(spec) if row.path and row.value]
    found += [(ControllerSettings, "controllerListenHost", host) for host in HOSTS]
    found += [(NameServerSettings, "bindAddress", host) for host in HOSTS]
    return found + [
        (spec, "metricsPromExporterHost", host)
        for spec in (SidecarSettings, ControllerSettings, NameServerSettings)
        for host in HOSTS
    ]


@pytest.mark.parametrize("spec", GOOD)
def test_what_can_work_is_taken(spec: type[Settings]) -> None:
    build_settings(spec, GOOD[spec])
    if spec in REPLICA:
        for more in ({"brokerIP1": "[fd00::1]"}, {"brokerIP2": "b.example.org"}, {"bindAddress": "::"}):
            build_settings(spec, {**GOOD[spec], **more})
        for path in (
            "/data/a b",
            "data",
            "./data",
            "../a.b_c-d",
            "~/store",
            "/data/a$",
            "/data/100%",
            "/data/x:y",
            "/",
        ):
            build_settings(spec, {**GOOD[spec], "storePathRootDir": path})
        for name in ("a", "broker-a", "Broker_1.zone", "0", "a" * 127):
            build_settings(spec, {**GOOD[spec], "brokerName": name, "brokerClusterName": name})


@pytest.mark.parametrize(("spec", "key", "value"), cases())
def test_what_cannot_work_is_refused(tmp_path: Path, spec: type[Settings], key: str, value: str) -> None:
    file = tmp_path / "x.conf"
    lines = [f"{name}={text}\n" for name, text in GOOD[spec].items() if name != key]
    file.write_bytes("".join(lines).encode() + properties.dump({key: value}))
    with pytest.raises(SettingsError, match=rf"x\.conf line {len(lines) + 1}[:,].* ?{key}"):
        build_settings(spec, read_properties_file(file))


BINDS = (
    *((spec, "bindAddress") for spec in (*REPLICA, NameServerSettings)),
    (ControllerSettings, "controllerListenHost"),
    (ControllerSettings, "bindAddress"),
    *((spec, "metricsPromExporterHost") for spec in (SidecarSettings, ControllerSettings, NameServerSettings)),
)


@pytest.mark.parametrize(("spec", "key"), BINDS)
def test_an_address_to_listen_on_may_have_brackets(spec: type[Settings], key: str) -> None:
    """As in lists of addresses; what opens ports gets it without."""
    for text, host in (("[::1]", "::1"), ("::1", "::1"), ("[::]", "::"), ("127.0.0.1", "127.0.0.1")):
        settings = build_settings(spec, {**GOOD[spec], key: text}).settings
        held = {name: getattr(settings, name) for name in spec.__struct_fields__ if "host" in name or "bind" in name}
        assert host in held.values(), held
        assert f"[{host}]" not in held.values()


def test_an_address_of_the_operator_may_have_brackets() -> None:
    assert load({"OPERATOR_HEALTH_HOST": "[::1]"}).settings.health_host == "::1"
    with pytest.raises(SettingsError, match="OPERATOR_HEALTH_HOST"):
        load({"OPERATOR_HEALTH_HOST": "a b"})


def test_beside_an_official_broker_names_are_what_that_takes() -> None:
    beside = {**GOOD[SidecarSettings], "brokerEngine": "apache", "storePathRootDir": "${user.home}/store"}
    for name in ("zone/broker", "broker a", "名字"):
        build_settings(SidecarSettings, {**beside, "brokerName": name})
    for name in ("a#b", "a" * 128):
        with pytest.raises(SettingsError, match="brokerName"):
            build_settings(SidecarSettings, {**beside, "brokerName": name})
