"""Official name servers and brokers for the demo, tests and benchmarks: loopback only, small files, ports chosen by the
caller.

Starting a server again on the same folder is a restart: it finds its store and its identity file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rocketmq_demo.apache.processes import LARGER_HEAP, SMALL_HEAP, JavaProcess, write_properties
from rocketmq_demo.ports import HOST

MIB = 1024 * 1024
Config = Mapping[str, object]


def start_nameserver(
    folder: Path, *, port: int, config: Config | None = None, options: Sequence[str] = SMALL_HEAP
) -> JavaProcess:
    """A name server. `config` are its own keys and override ours."""
    values: dict[str, object] = {
        "listenPort": port,
        "bindAddress": HOST,
        "kvConfigPath": folder / "kvConfig.json",
        "configStorePath": folder / "namesrv.properties",
        **(config or {}),
    }
    file = write_properties(folder / "conf" / "namesrv.conf", values)
    return JavaProcess(
        f"namesrv-{port}",
        "org.apache.rocketmq.namesrv.NamesrvStartup",
        ["-c", str(file)],
        folder=folder,
        ports=[port],
        options=options,
        logging="namesrv",
    )


def start_broker(
    folder: Path,
    *,
    port: int,
    controllers: Sequence[int | str],
    nameservers: Sequence[int | str],
    cluster: str = "DefaultCluster",
    name: str = "broker-a",
    config: Config | None = None,
    options: Sequence[str] = LARGER_HEAP,
) -> JavaProcess:
    """A broker in controller mode; it also takes `port` - 2 and `port` + 1: `PortPool.broker` gives such a `port`.

    Its name server must answer a slave's registration with the master's HA address, or the slave never replicates.
    """
    values: dict[str, object] = {
        "brokerClusterName": cluster,
        "brokerName": name,
        "listenPort": port,
        "bindAddress": HOST,
        "brokerIP1": HOST,
        "brokerIP2": HOST,
        "enableControllerMode": True,
        "controllerAddr": addresses(controllers),
        "namesrvAddr": addresses(nameservers),
        "storePathRootDir": folder / "store",
        "storePathCommitLog": folder / "store" / "commitlog",
        "mappedFileSizeCommitLog": 64 * MIB,
        "mappedFileSizeConsumeQueue": 20 * 30_000,
        "maxHashSlotNum": 50_000,  # the index files would otherwise claim 400 MB of sparse file each
        "maxIndexNum": 200_000,
        "diskMaxUsedSpaceRatio": 95,
        "autoCreateTopicEnable": True,
        **(config or {}),
    }
    file = write_properties(folder / "conf" / "broker.conf", values)
    return JavaProcess(
        f"{name}-{port}",
        "org.apache.rocketmq.broker.BrokerStartup",
        ["-c", str(file)],
        folder=folder,
        ports=[port - 2, port, port + 1],
        options=options,
        logging="broker",
    )


def addresses(ports: Sequence[int | str]) -> str:
    """Ports on loopback, or whole addresses, joined as RocketMQ's lists are."""
    return ";".join(port if isinstance(port, str) else f"{HOST}:{port}" for port in ports)
