"""The controller's keys: what contradicts itself is refused in words that help, and updates survive a restart."""

import asyncio
import itertools
from pathlib import Path

import msgspec
import pytest

from rocketmq_controller.config import LiveConfig
from rocketmq_controller.settings import ControllerSettings, Peer, port_distances
from rocketmq_formats.codes import ResponseCode
from rocketmq_formats.errors import BodyError
from rocketmq_runtime.config.live_config import MAX_BODY, MAX_WAITING, PAUSE
from rocketmq_runtime.config.settings import SettingsError, build_settings

PEERS = "n0-127.0.0.1:9878;n1-127.0.0.1:9868;n2-127.0.0.1:9858"
GOOD = {"controllerDLegerPeers": PEERS, "controllerDLegerSelfId": "n0", "controllerRaftSecretFile": "/run/secret"}


def settings(**overrides: str) -> ControllerSettings:
    return build_settings(ControllerSettings, {**GOOD, **overrides}).settings


def test_ports_follow_the_remoting_port() -> None:
    made = settings()
    assert (made.self_peer.port, made.raft_port, made.grpc_port) == (9878, 9879, 9880)
    assert [made.raft_port_of(peer) for peer in made.peers.values()] == [9879, 9869, 9859]


@pytest.mark.parametrize(
    ("ports", "raft", "grpc"),
    [
        pytest.param((9877, 9878, 9879), 3, 6, id="RIP-44's own list"),
        pytest.param((9877, 9879, 9881), 3, 6, id="every second port"),
        pytest.param(tuple(range(9877, 9892)), 15, 30, id="as many as there may be"),
        pytest.param((9878, 9881, 9884), 1, 2, id="just far enough"),
        pytest.param((9878,), 1, 2, id="alone"),
    ],
)
def test_members_on_one_host_share_no_port(ports: tuple[int, ...], raft: int, grpc: int) -> None:
    peers = [Peer(f"n{number}", "127.0.0.1", port) for number, port in enumerate(ports)]
    assert port_distances(peers) == (raft, grpc)
    assert port_distances([Peer(peer.id, peer.id, peer.port) for peer in peers]) == (1, 2), "each on its own host"


def test_a_configured_port_counts_whatever_the_others_are() -> None:
    peers = [Peer(f"n{number}", "127.0.0.1", 9877 + number) for number in range(3)]
    assert port_distances(peers, 100) == (100, 4)
    assert port_distances(peers, None, 200) == (3, 200)
    assert port_distances(peers, 1, 2) == (1, 2)
    made = settings(
        controllerDLegerPeers="n0-127.0.0.1:9877;n1-127.0.0.1:9878;n2-127.0.0.1:9879", controllerDLegerSelfId="n1"
    )
    assert (made.self_peer.port, made.raft_port, made.grpc_port) == (9878, 9881, 9884)
    assert [made.raft_port_of(peer) for peer in made.peers.values()] == [9880, 9881, 9882]


@pytest.mark.parametrize(("other", "grpc", "raft"), [(9881, 9882, (9879, 9882)), (9880, 9885, (9881, 9883))])
def test_a_grpc_port_of_its_own_moves_nobodys_raft_port(other: int, grpc: int, raft: tuple[int, int]) -> None:
    """The other members do not know it: they look for Raft where it is without the key."""
    made = settings(
        controllerDLegerPeers=f"n0-127.0.0.1:9878;n1-127.0.0.1:{other}",
        controllerJoin="true",
        controllerGrpcPort=str(grpc),
    )
    assert made.grpc_port == grpc
    assert tuple(made.raft_port_of(peer) for peer in made.peers.values()) == raft


def test_an_ipv6_member_is_announced_in_brackets() -> None:
    peers = settings(controllerDLegerPeers="n0-[fd00::1]:9878;n1-fd00::2:9878;n2-c:9878").peers
    assert [peer.address for peer in peers.values()] == ["[fd00::1]:9878", "[fd00::2]:9878", "c:9878"]


def test_a_member_that_joins_may_name_an_even_number() -> None:
    peers = "n0-a:1;n1-b:1"
    assert len(settings(controllerDLegerPeers=peers, controllerDLegerSelfId="n1", controllerJoin="true").peers) == 2


def test_a_raft_port_of_its_own_is_a_distance_that_peers_keep() -> None:
    made = settings(controllerRaftPort="9900")
    assert [made.raft_port_of(peer) for peer in made.peers.values()] == [9900, 9890, 9880]


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"controllerDLegerPeers": ""}, "controllerDLegerPeers is not set"),
        ({"controllerDLegerPeers": "n0=127.0.0.1:1"}, "id-host:port"),
        ({"controllerDLegerPeers": "n0-127.0.0.1"}, "host:port"),
        ({"controllerDLegerPeers": "n0-127.0.0.1:x"}, "host:port"),
        ({"controllerDLegerPeers": "n0-127.0.0.1:70000"}, "host:port"),
        ({"controllerDLegerPeers": "n0-a:1;n0-b:1;n1-c:1"}, "occurs twice"),
        ({"controllerDLegerPeers": "n0-a:1;n1-a:1;n2-c:1"}, "same address"),
        ({"controllerDLegerPeers": "n0-a:1;n1-b:1"}, "even number"),
        ({"controllerDLegerSelfId": "n9"}, "controllerDLegerSelfId='n9'"),
        ({"controllerRaftSecretFile": ""}, "controllerRaftSecretFile is not set"),
        ({"controllerGrpcTlsCertFile": "c.pem"}, "go together"),
        ({"controllerGrpcPort": "9878"}, "two ports are the same"),
        ({"controllerRaftPort": "1"}, None),
        ({"metricsPromExporterPort": "9879"}, "two ports are the same"),
        ({"metricsPromExporterPort": "70000"}, "metricsPromExporterPort"),
        ({"metricsLabel": "no-colon"}, "metricsLabel"),
        ({"brokerSuspectTimeoutMs": "0"}, "brokerSuspectTimeoutMs"),
        ({"controllerType": "jRaft"}, "controllerType"),
        ({"logFormat": "xml"}, "logFormat"),
    ],
)
def test_contradictions_are_refused_in_words(overrides: dict[str, str], says: str | None) -> None:
    if says is None:
        settings(**overrides)
        return
    with pytest.raises(SettingsError, match=says):
        settings(**overrides)


@pytest.fixture
def live(tmp_path: Path) -> LiveConfig:
    return LiveConfig({**GOOD, "controllerStorePath": str(tmp_path)}, {})


async def test_an_update_takes_effect_and_survives_a_restart(live: LiveConfig, tmp_path: Path) -> None:
    told: list[int] = []
    live.on_update(lambda changed: told.append(changed.broker_suspect_timeout_ms))
    assert (await live.update(b"brokerSuspectTimeoutMs=1500\nsomeJavaKey=1\n")).code is ResponseCode.SUCCESS
    assert live.settings.broker_suspect_timeout_ms == 1500
    assert told == [1500]
    again = LiveConfig({**GOOD, "controllerStorePath": str(tmp_path)}, {})
    assert again.settings.broker_suspect_timeout_ms == 1500
    assert again.kept_updates == ("brokerSuspectTimeoutMs",)


async def test_an_update_of_nothing_is_a_success(live: LiveConfig) -> None:
    assert (await live.update(b"")).code is ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"configStorePath=/x\n", ResponseCode.NO_PERMISSION),
        (b"configBlackList=\n", ResponseCode.NO_PERMISSION),
        (b"rocketmqHome=/x\n", ResponseCode.NO_PERMISSION),
        (b"brokerSuspectTimeoutMs=soon\n", ResponseCode.CONTROLLER_INVALID_REQUEST),
        (b"controllerDLegerSelfId=n1\n", ResponseCode.NO_PERMISSION),
    ],
)
async def test_refused_updates_change_nothing(
    live: LiveConfig, tmp_path: Path, text: bytes, code: ResponseCode
) -> None:
    before = live.settings
    assert (await live.update(b"scanInactiveMasterInterval=900\n" + text)).code is code
    assert live.settings == before
    assert not list(tmp_path.iterdir())


async def test_an_update_that_cannot_be_written_is_not_done(tmp_path: Path) -> None:
    config = LiveConfig({**GOOD, "configStorePath": str(tmp_path / "no" / "such" / "folder" / "x")}, {})
    assert (await config.update(b"brokerSuspectTimeoutMs=1500\n")).code is ResponseCode.SYSTEM_ERROR
    assert config.settings.broker_suspect_timeout_ms == 3000


def test_a_folder_that_cannot_be_looked_into_is_refused(tmp_path: Path) -> None:
    """As with a volume that belongs to another user; here by a name that no file may have."""
    with pytest.raises(SettingsError, match="must be able to read and write there"):
        LiveConfig({**GOOD, "controllerStorePath": str(tmp_path / ("x" * 300))}, {})


async def test_a_key_from_the_environment_cannot_be_updated(tmp_path: Path) -> None:
    config = LiveConfig({**GOOD, "controllerStorePath": str(tmp_path)}, {"brokerSuspectTimeoutMs": "4000"})
    decision = await config.update(b"brokerSuspectTimeoutMs=1500\n")
    assert decision.code is ResponseCode.CONTROLLER_INVALID_REQUEST
    assert decision.remark is not None
    assert "environment" in decision.remark


async def test_an_update_that_is_not_properties_text_is_a_bad_body(live: LiveConfig) -> None:
    with pytest.raises(BodyError):
        await live.update(b"\xff\xfe")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("controllerRaftSecretFile", "/etc/hostname"),
        ("controllerGrpcTlsCertFile", ""),
        ("controllerDLegerPeers", "n0-127.0.0.1:9878;n1-evil:9868;n2-127.0.0.1:9858"),
        ("controllerStorePath", "/tmp/other"),
        ("controllerListenHost", "127.0.0.1"),
        ("controllerRaftPort", "9999"),
        ("controllerGrpcPort", "9999"),
        ("raftElectionTimeoutMs", "86400000"),
        ("raftHeartbeatIntervalMs", "1"),
        ("raftSnapshotEntries", "100"),
        ("maxConnections", "10"),
        ("metricsPromExporterHost", "10.0.0.1"),
        ("metricsPromExporterPort", "0"),
    ],
)
async def test_what_only_the_machine_may_set_is_refused_and_old_updates_of_it_do_not_count(
    live: LiveConfig, tmp_path: Path, key: str, value: str
) -> None:
    """Java keeps them: who reaches the port makes the next start fail, or the secret one that is known."""
    refused = await live.update(f"brokerSuspectTimeoutMs=1500\n{key}={value}\n".encode())
    assert refused.code is ResponseCode.NO_PERMISSION
    assert refused.remark is not None
    assert key in refused.remark
    (tmp_path / "controller.properties").write_text(f"{key}={value}\nbrokerSuspectTimeoutMs=1500\n")
    started = LiveConfig({**GOOD, "controllerStorePath": str(tmp_path)}, {})
    assert started.settings == msgspec.structs.replace(live.settings, broker_suspect_timeout_ms=1500)
    assert (started.kept_updates, list(started.ignored_updates)) == (("brokerSuspectTimeoutMs",), [key])


def test_a_kept_update_that_is_no_longer_right_does_not_keep_the_controller_from_starting(tmp_path: Path) -> None:
    (tmp_path / "controller.properties").write_text("brokerSuspectTimeoutMs=soon\nelectMasterMaxRetryCount=4\n")
    started = LiveConfig({**GOOD, "controllerStorePath": str(tmp_path)}, {})
    assert (started.settings.elect_master_max_retry_count, started.settings.broker_suspect_timeout_ms) == (4, 3000)
    assert list(started.ignored_updates) == ["brokerSuspectTimeoutMs"]


@pytest.mark.looptime
async def test_updates_are_written_in_turn_and_not_too_often(tmp_path: Path) -> None:
    written: list[tuple[float, bytes]] = []
    loop = asyncio.get_running_loop()
    config = LiveConfig({**GOOD, "controllerStorePath": str(tmp_path)}, {})
    config._write = lambda _path, data: written.append((loop.time(), data))
    numbers = range(2, 2 + MAX_WAITING)
    updates = [config.update(f"electMasterMaxRetryCount={number}\n".encode(), host=f"{number}") for number in numbers]
    *taken, busy = await asyncio.gather(*updates, config.update(b"electMasterMaxRetryCount=99\n"))
    assert {answer.code for answer in taken} == {ResponseCode.SUCCESS}
    assert busy.code is ResponseCode.SYSTEM_BUSY
    assert config.settings.elect_master_max_retry_count == numbers[-1]
    assert [data for _, data in written] == [f"electMasterMaxRetryCount={number}\n".encode() for number in numbers]
    times = [now for now, _ in written]
    assert min(after - before for before, after in itertools.pairwise(times)) > PAUSE - 1e-6
    assert (await config.update(f"electMasterMaxRetryCount={numbers[-1]}\n".encode())).code is ResponseCode.SUCCESS
    assert len(written) == MAX_WAITING, "it says what is kept already"


async def test_an_update_of_many_bytes_is_refused(live: LiveConfig) -> None:
    with pytest.raises(BodyError, match="more than"):
        await live.update(b"#" * (MAX_BODY + 1))


def test_the_listing_is_sorted_properties(live: LiveConfig) -> None:
    lines = live.as_properties().decode().splitlines()
    keys = [line.partition("=")[0] for line in lines]
    assert keys == sorted(keys)
    assert "controllerDLegerSelfId=n0" in lines
