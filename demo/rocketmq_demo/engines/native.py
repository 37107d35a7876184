"""The native engine: our own brokers, name servers, producer and consumer. Needs only Python."""

from collections.abc import Sequence
from pathlib import Path

from rocketmq_demo.engines.engine import BROKER_GROUP, CLUSTER
from rocketmq_demo.engines.native_delayed import NativeDelayed
from rocketmq_demo.engines.native_load import NativeLoad
from rocketmq_demo.engines.native_reader import NativeReader
from rocketmq_demo.ports import PortPool
from rocketmq_demo.processes import make_secret
from rocketmq_demo.replica import NameServer, make_group

NAME_SERVERS = 2


class NativeEngine:
    """Implements `engine.Engine`."""

    name = "native"
    remark = (
        "Our own servers throughout: controllers, name servers, and brokers with their sidecars, no Java. "
        "Every message that was acknowledged is read back at the end."
    )
    patience = 30.0

    def __init__(self, folder: Path, *, ports: PortPool, controllers: Sequence[str], replicas: int) -> None:
        self._folder = folder
        self._nameserver_ports = [ports.single() for _ in range(NAME_SERVERS)]
        self._nameservers: list[NameServer] = []
        secret = make_secret(folder / "replication.secret")
        addresses = [f"127.0.0.1:{port}" for port in self._nameserver_ports]
        config = {
            "haReplicationSecretFile": secret,
            "enableSlaveActingMaster": True,
            "enableRemoteEscape": True,
        }
        self.brokers = make_group(
            "broker",
            replicas,
            folder=folder,
            ports=ports,
            controllers=controllers,
            nameservers=addresses,
            cluster=CLUSTER,
            name=BROKER_GROUP,
            config=config,
        )
        self.load = NativeLoad(nameservers=addresses)
        self.reader = NativeReader(nameservers=addresses)
        self.delayed = NativeDelayed(folder, ports=ports, controllers=controllers, nameservers=addresses, config=config)

    def start(self) -> None:
        """Start name servers and replicas, all at the same time."""
        for number, port in enumerate(self._nameserver_ports, 1):
            folder = self._folder / f"namesrv-{number}"
            self._nameservers.append(NameServer(folder, port=port, config={"supportActingMaster": True}))
        for broker in self.brokers:
            broker.launch()
        for server in self._nameservers:
            server.wait_listening()
        for broker in self.brokers:
            broker.wait_listening()

    def close(self) -> None:
        """End everything that was started."""
        for broker in self.brokers:
            broker.close()
        self.delayed.close()
        for server in self._nameservers:
            server.close()
