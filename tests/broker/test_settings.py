"""The configuration file, as Java's brokers have it."""

import socket
from pathlib import Path

import pytest

from rocketmq_broker.command import run
from rocketmq_broker.core import BrokerCore, store_settings
from rocketmq_broker.host import numeric
from rocketmq_broker.settings import BrokerSettings
from rocketmq_formats.store.message_id import decode_host
from rocketmq_runtime.command_line import EXIT_USAGE
from rocketmq_runtime.config.settings import SettingsError, build_settings
from rocketmq_settings.table import OF_THE_SIDECAR
from tests.broker.broker_kit import settings_for

JAVA = {
    "brokerClusterName": "C",
    "brokerName": "broker-a",
    "brokerId": "0",
    "brokerRole": "ASYNC_MASTER",
    "deleteWhen": "04",
    "fileReservedTime": "48",
    "flushDiskType": "ASYNC_FLUSH",
    "controllerAddr": "127.0.0.1:9878;127.0.0.1:9868",
    "namesrvAddr": "127.0.0.1:9876;127.0.0.1:9877",
    "listenPort": "30911",
    "haListenPort": "30912",
    "brokerIP1": "127.0.0.1",
    "storePathRootDir": "/tmp/x",
    "storePathCommitLog": "/tmp/x/commitlog",
    "allAckInSyncStateSet": "true",
    "enableControllerMode": "true",
    "mappedFileSizeCommitLog": "1048576",
}


DISK = ("diskMaxUsedSpaceRatio", "diskSpaceCleanForciblyRatio", "diskSpaceWarningLevelRatio")
ALONE = {"enableControllerMode": "false"}


def test_a_java_file_is_understood() -> None:
    loaded = build_settings(BrokerSettings, JAVA)
    assert set(loaded.unknown_keys) <= OF_THE_SIDECAR
    settings = loaded.settings
    assert settings.name_servers == ("127.0.0.1:9876", "127.0.0.1:9877")
    assert (settings.fast_port, settings.ha_port) == (30909, 30912)
    assert (settings.broker_ip1, settings.copies_needed) == ("127.0.0.1", 2)
    assert str(settings.socket_path) == "/tmp/x/sidecar.sock"


@pytest.mark.parametrize(
    ("written", "used", "clean", "refuse"),
    [
        ({}, 75, 0.85, 0.9),
        (dict.fromkeys(DISK, "60"), 60, 0.6, 0.6),
        (dict.fromkeys(DISK, "0"), 10, 0.3, 0.35),
        (dict.fromkeys(DISK, "100"), 95, 0.85, 0.9),
    ],
)
def test_parts_of_the_disk_are_per_cent_with_java_s_bounds(
    written: dict[str, str], used: int, clean: float, refuse: float
) -> None:
    store = store_settings(build_settings(BrokerSettings, {**JAVA, **written}).settings)
    assert (store.disk_max_used_ratio, store.disk_clean_ratio, store.disk_refuse_ratio) == (used, clean, refuse)


def test_a_part_of_the_disk_as_a_fraction_is_refused() -> None:
    for name in DISK:
        with pytest.raises(SettingsError, match=name):
            build_settings(BrokerSettings, {**JAVA, name: "0.9"})


def test_copies_needed() -> None:
    def needed(**keys: str) -> int:
        return build_settings(BrokerSettings, {"brokerName": "b", **keys}).settings.copies_needed

    assert needed() == 2
    assert needed(minInSyncReplicas="3") == 3
    assert needed(durability="relaxed") == 1
    assert needed(durability="relaxed", minInSyncReplicas="2") == 2
    assert needed(**ALONE, durability="relaxed", minInSyncReplicas="2") == 1, "an ASYNC_MASTER"
    assert needed(**ALONE) == 2


@pytest.mark.parametrize(
    ("keys", "alone"),
    [
        ({}, False),
        ({"durability": "relaxed"}, True),
        ({"durability": "relaxed", "allAckInSyncStateSet": "true"}, False),
        ({"durability": "relaxed", "inSyncReplicas": "2"}, False),
        ({"durability": "relaxed", "minInSyncReplicas": "2"}, False),
        ({"durability": "relaxed", "flushDiskType": "SYNC_FLUSH"}, False),
        ({**ALONE, "brokerRole": "ASYNC_MASTER"}, False),
        ({**ALONE, "brokerRole": "ASYNC_MASTER", "durability": "relaxed", "inSyncReplicas": "2"}, True),
        ({**ALONE, "brokerRole": "ASYNC_MASTER", "durability": "relaxed", "allAckInSyncStateSet": "true"}, True),
        ({**ALONE, "brokerRole": "SYNC_MASTER", "durability": "relaxed", "inSyncReplicas": "2"}, False),
        ({"brokerRole": "ASYNC_MASTER", "durability": "relaxed", "inSyncReplicas": "2"}, False),
    ],
)
def test_when_the_master_acknowledges_alone(keys: dict[str, str], *, alone: bool) -> None:
    settings = build_settings(BrokerSettings, {"brokerName": "b", **keys}).settings
    assert settings.put_ok.alone is alone


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("brokerName", "a#b"),
        ("listenPort", "1"),
        ("listenPort", "70000"),
        ("haListenPort", "30909"),
        ("namesrvAddr", "nowhere"),
        ("durability", "some"),
        ("flushDiskType", "NEVER"),
        ("maxMessageSize", "0"),
        ("mappedFileSizeCommitLog", "many"),
        ("brokerPermission", "8"),
        ("storePathRootDir", ""),
        ("storePathRootDir", "~nobody-of-this-name/store"),
        ("storePathCommitLog", "/tmp/a\0b"),
        ("storePathCommitLog", "/data1/commitlog,/data2/commitlog"),
        *(("storePathCommitLog", path) for path in ("/tmp/x", "/tmp/x/", "/tmp/y/../x/config", "/tmp/x//consumequeue")),
        ("defaultTopicQueueNums", "65537"),
        ("brokerIP1", "not a host"),
        ("brokerIP2", "127.0.0.1:10912"),
        ("brokerIP1", "300.1.1.1"),
        ("regionId", "a\x01b"),
        ("deleteWhen", "24"),
        ("deleteWhen", ""),
        ("messageDelayLevel", "1s 1x"),
    ],
)
def test_wrong_values_are_refused_with_their_key(key: str, value: str) -> None:
    with pytest.raises(SettingsError, match=key):
        build_settings(BrokerSettings, {**JAVA, key: value})


@pytest.mark.parametrize("name", ["", "a b", "TBW102", "SCHEDULE_TOPIC_XXXX", "C", "broker-a"])
def test_a_trace_topic_takes_no_other_topic_s_place(name: str) -> None:
    with pytest.raises(SettingsError, match="msgTraceTopicName"):
        build_settings(BrokerSettings, {**JAVA, "traceTopicEnable": "true", "msgTraceTopicName": name})
    build_settings(BrokerSettings, {**JAVA, "msgTraceTopicName": name})


@pytest.mark.parametrize(
    "key",
    [
        *("inSyncReplicas", "minInSyncReplicas", "totalReplicas", "registerNameServerPeriod"),
        *(f"maxTransfer{what}OnMessageIn{where}" for what in ("Bytes", "Count") for where in ("Memory", "Disk")),
    ],
)
def test_0_counts_as_1_where_it_does_in_java(key: str) -> None:
    def built(value: str) -> BrokerSettings:
        return build_settings(BrokerSettings, {**JAVA, key: value}).settings

    assert built("0") == built("1")
    with pytest.raises(SettingsError, match=key):
        built("-1")


def test_a_broker_ip1_that_does_not_resolve_is_refused_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_arguments: object, **_keys: object) -> list[object]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    file = tmp_path / "broker.conf"
    file.write_text(f"storePathRootDir={tmp_path}\nbrokerIP1=no-such-host\n")
    with monkeypatch.context() as patch:
        patch.setattr(socket, "getaddrinfo", unknown)
        assert run(["-c", str(file), "-p"]) == EXIT_USAGE
    said = capsys.readouterr().err
    assert f"{file} line 2: brokerIP1=no-such-host: the name does not resolve (Name or service not known)" in said
    file.write_text(f"storePathRootDir={tmp_path}\nbrokerIP1=localhost\n")
    assert run(["-c", str(file), "-p"]) == 0


@pytest.mark.parametrize(("count", "address"), [(2, "10.0.0.1"), (1, "fe80::1")])
def test_a_name_with_both_families_is_its_ipv4_address_in_records(
    monkeypatch: pytest.MonkeyPatch, count: int, address: str
) -> None:
    def both(*_arguments: object, **_keys: object) -> list[object]:
        places = ((socket.AF_INET6, ("fe80::1%eth0", 0, 0, 2)), (socket.AF_INET, ("10.0.0.1", 0)))
        return [(family, socket.SOCK_STREAM, 0, "", place) for family, place in places[:count]]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    assert numeric("host") == address


@pytest.mark.parametrize("host", ["::1", "[::1]"])
async def test_an_ipv6_address_is_announced_in_brackets(tmp_path: Path, host: str) -> None:
    core = BrokerCore(settings_for(tmp_path, brokerIP1=host, listenPort=30911, haListenPort=30912))
    assert (core.address, core.ha_address) == ("[::1]:30911", "[::1]:30912")
    assert decode_host(core.store_host) == ("::1", 30911)


def test_the_role_fits_the_id_where_it_counts() -> None:
    for broker_id, role in (("0", "SLAVE"), ("-1", "SLAVE"), ("1", "ASYNC_MASTER"), ("2", "SYNC_MASTER")):
        keys = {**JAVA, "brokerId": broker_id, "brokerRole": role}
        build_settings(BrokerSettings, keys)
        with pytest.raises(SettingsError, match=f"brokerId={broker_id} with brokerRole={role}"):
            build_settings(BrokerSettings, {**keys, **ALONE})
    for broker_id, role in (("1", "SLAVE"), ("0", "ASYNC_MASTER"), ("0", "SYNC_MASTER")):
        build_settings(BrokerSettings, {**JAVA, **ALONE, "brokerId": broker_id, "brokerRole": role})
