"""The apache engine: official brokers and name server from Maven, the official Java producer, our controllers."""

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from rocketmq_demo.apache import jars, servers
from rocketmq_demo.apache.broker import OfficialBroker
from rocketmq_demo.apache.ledger import Ledger, audit
from rocketmq_demo.apache.processes import NO_TLS, SMALL_HEAP, JavaProcess
from rocketmq_demo.engines.engine import BROKER_GROUP, CLUSTER, MOMENT, Acknowledgement, LoadResult
from rocketmq_demo.ports import HOST, PortPool

TOPIC = "ledger"
_START_TIMEOUT = 90.0
_SECONDS_AT_MOST = 3600
_CONFIG = {
    # A send is acknowledged when every member of the SyncStateSet has it: only then "lost: 0" is a promise.
    "allAckInSyncStateSet": True,
    "syncFlushTimeout": 3000,
    # Slaves learn a new master's HA address when they register at the name server, 30 s apart by default.
    "registerNameServerPeriod": 10_000,
    "haHousekeepingInterval": 10_000,
}


class OfficialLoad:
    """Implements `engine.Load` by the Java producer and, at the end, a consumer that reads everything back."""

    def __init__(self, folder: Path, *, nameserver: str) -> None:
        self._folder = folder
        self._nameserver = nameserver
        self._ledger: Ledger | None = None
        self._known: list[Acknowledgement] = []
        self._read_to = 0
        self._lock = threading.Lock()

    async def start(self) -> None:
        self._ledger = await asyncio.to_thread(self._start)

    def acknowledgements(self) -> Sequence[Acknowledgement]:
        """All so far."""
        if self._ledger is not None:
            with self._lock:
                self._read_new(self._ledger.path)
        return self._known

    def failures(self) -> int:
        """Attempts that failed so far."""
        return 0 if self._ledger is None else len(self._ledger.failures())

    def patient(self) -> AbstractContextManager[None]:
        """It always is: the process that sends has one limit."""
        return nullcontext()

    async def finish(self) -> LoadResult:
        """Stop the producer and read the topic back."""
        if self._ledger is None:
            return LoadResult(acknowledged=0, failed=0)
        return await asyncio.to_thread(self._finish, self._ledger)

    def close(self) -> None:
        if self._ledger is not None:
            self._ledger.close()

    def _read_new(self, path: Path) -> None:
        # Not `Ledger.acknowledged`, which reads everything: this is called many times a second.
        if not path.exists():
            return
        with path.open("rb") as file:
            file.seek(self._read_to)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read_to += len(whole)
        for line in whole.decode().splitlines():
            number, _, monotonic_ns, *_ = line.split("\t")
            self._known.append(Acknowledgement(int(monotonic_ns) / 1e9, int(number)))

    def _start(self) -> Ledger:
        return Ledger(
            self._folder / "ledger",
            nameservers=self._nameserver,
            topic=TOPIC,
            seconds=_SECONDS_AT_MOST,
            timeout_ms=int(MOMENT * 1000),  # Java's default of 3 s would hide how fast the group is
        )

    def _finish(self, ledger: Ledger) -> LoadResult:
        ledger.finish()
        acknowledged, failed = len(ledger.acknowledged()), len(ledger.failures())
        if not acknowledged:
            return LoadResult(acknowledged=0, failed=failed, problems=("the producer sent nothing",))
        found = audit(self._folder / "audit", nameservers=self._nameserver, topic=TOPIC, ledger=ledger.path, seconds=60)
        problems = () if found["complete"] else ("the topic could not be read to its end",)
        return LoadResult(
            acknowledged=acknowledged,
            failed=failed,
            read_back=found["distinct"],
            lost=found["missingCount"],
            duplicated=found["duplicateCount"],
            problems=problems,
        )


class OfficialEngine:
    """Implements `engine.Engine`."""

    name = "apache"
    remark = (
        f"Official Apache RocketMQ {jars.ROCKETMQ_VERSION} brokers, name server and producer with our controllers. "
        "Every acknowledged message is read back at the end."
    )
    patience = 90.0
    reader = None
    delayed = None

    def __init__(self, folder: Path, *, ports: PortPool, controllers: Sequence[str], replicas: int) -> None:
        """Choose ports, and build the class path if it is not cached.

        Raises:
            ApacheEngineUnavailable: no Java, or no Maven to fetch RocketMQ's jars with.
        """
        jars.java()
        jars.classpath()
        self._folder = folder
        self._nameserver_port = ports.single()
        self._nameserver: JavaProcess | None = None
        self.brokers = [
            OfficialBroker(
                label,
                folder=folder / label,
                ports=ports,
                controllers=controllers,
                nameservers=[self._nameserver_port],
                cluster=CLUSTER,
                name=BROKER_GROUP,
                config=_CONFIG,
            )
            for label in (f"broker-{number}" for number in range(1, replicas + 1))
        ]
        self.load = OfficialLoad(folder, nameserver=f"{HOST}:{self._nameserver_port}")

    def start(self) -> None:
        """Start name server and brokers, one after the other: each JVM takes a core for a second or two."""
        self._nameserver = servers.start_nameserver(
            self._folder / "namesrv", port=self._nameserver_port, options=[*SMALL_HEAP, NO_TLS]
        )
        self._nameserver.wait_port(_START_TIMEOUT)
        for broker in self.brokers:
            broker.launch()
            time.sleep(0.3)  # so that the first one gets the first id
        for broker in self.brokers:
            broker.process.wait_port(_START_TIMEOUT)

    def close(self) -> None:
        """End everything that was started."""
        self.load.close()
        for broker in self.brokers:
            broker.close()
        if self._nameserver is not None:
            self._nameserver.close()
