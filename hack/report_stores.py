"""Makes a group's real stores and verifies them again and again, then a damaged copy of them: for the docs' picture.

    python hack/report_stores.py FOLDER        (hack/report_picture.sh calls it; takes about two minutes)

A native group runs on loopback under load and is verified while it runs, with a history; a slave hangs for a while and
then for good. Of its stores, copies are damaged: a bit of a message in one slave, a file less in the one that lags.
FOLDER gets aligned.html (the group's last run while it lived) and damaged.html (all of the copies).
"""

import asyncio
import random
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rocketmq_client.errors import ClientError
from rocketmq_client.producer import Producer
from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.engines.engine import BROKER_GROUP, CLUSTER
from rocketmq_demo.ports import PortPool
from rocketmq_demo.replica import NameServer, Replica
from rocketmq_runtime.remoting.client import RemotingError
from rocketmq_verify import job
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.engine.session import Engine, SessionOptions
from rocketmq_verify.history.runs import Group
from rocketmq_verify.progress import NoProgress
from rocketmq_verify.report.html_report import page
from rocketmq_verify.run import Request, Run
from rocketmq_verify.sources.work import Place

TOPICS = ("orders-eu", "orders-us", "payments")
GOODS = ("tea", "rice", "soap", "bread", "lamp", "paper")
FILE_SIZE = 1 << 20
ROUNDS = 16
HANGS, HEALED, HANGS_AGAIN = 4, 9, 12
"""Rounds before which the last slave stops, continues, and stops for good: others confirm without it after 15
seconds."""


async def _send(nameservers: Sequence[str]) -> None:
    dice, number = random.Random(6), 0
    async with Producer(nameservers, group="shop", attempts=1, timeout=1.0) as producer:
        while True:
            number += 1
            items = ", ".join(f"{dice.randrange(1, 9)} x {dice.choice(GOODS)}" for _ in range(dice.randrange(60, 300)))
            body = f'{{"order": {number}, "items": "{items}"}}'.encode()
            with suppress(ClientError, RemotingError):  # no master for a moment
                await producer.send(dice.choice(TOPICS), body, properties={"KEYS": f"order-{number}"})
            await asyncio.sleep(0.002)


class Shop:
    """The group, its name server, and its operations."""

    def __init__(self, folder: Path, ports: PortPool, controllers: Sequence[str]) -> None:
        self.folder = folder
        port = ports.single()
        self.nameservers = [f"127.0.0.1:{port}"]
        self.nameserver = NameServer(folder / "namesrv", port=port)
        config = {"mappedFileSizeCommitLog": FILE_SIZE}
        self.replicas = [
            Replica(
                f"{BROKER_GROUP}-{number}",
                folder=folder / f"{BROKER_GROUP}-{number}",
                ports=ports,
                controllers=controllers,
                nameservers=self.nameservers,
                cluster=CLUSTER,
                name=BROKER_GROUP,
                config=config,
            )
            for number in range(3)
        ]

    async def live(self, spark: Engine) -> list[Run]:
        """Verified under load: all runs."""
        runs: list[Run] = []
        for replica in self.replicas:  # one after the other: the first one leads
            await asyncio.to_thread(replica.start)
            await asyncio.sleep(3)
        sending = asyncio.create_task(_send(self.nameservers))
        *_, late = self.replicas
        try:
            for number in range(ROUNDS):
                if number in {HANGS, HANGS_AGAIN}:
                    late.process.suspend()
                if number == HEALED:
                    late.process.resume()
                await asyncio.sleep(4)
                runs.append(await asyncio.to_thread(self.verify, spark, "", full=number == ROUNDS // 2))
                print(f"{number + 1} of {ROUNDS}: {runs[-1].verdict.summary}", flush=True)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        return runs

    def verify(self, spark: Engine, below: str, *, full: bool) -> Run:
        """A run over the stores, or over those in `below` of the folder."""
        places = tuple(
            Place(ReplicaName(replica.label), f"files:{self.folder / below / replica.label / 'store'}")
            for replica in self.replicas
        )
        group = Group(CLUSTER, BROKER_GROUP)
        request = Request(
            group=group, places=places, full=full, history_path=str(self.folder / "history"),
            broker_group="broker-a",
        )  # fmt: skip
        return job.run(request, spark, NoProgress())

    def damage(self) -> None:
        """Copies of the stores, two of which are not what they were."""
        for replica in self.replicas:
            shutil.copytree(
                self.folder / replica.label / "store",
                self.folder / "copies" / replica.label / "store",
                ignore=shutil.ignore_patterns("*.sock"),
            )
        _, wrong, late = (self.folder / "copies" / replica.label / "store" / "commitlog" for replica in self.replicas)
        path = sorted(wrong.iterdir())[2]
        data = bytearray(path.read_bytes())
        data[data.index(b'"items": "', FILE_SIZE // 2) + 40] ^= 0x20
        path.write_bytes(data)
        sorted(late.iterdir())[1].unlink()

    def close(self) -> None:
        """End all processes."""
        for replica in self.replicas:
            with suppress(AssertionError):  # not started
                replica.process.resume()
            replica.close()
        self.nameserver.close()


def main() -> int:
    """Both reports; 1 if they are not what they should be."""
    folder = Path(sys.argv[1]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    spark = Engine(SessionOptions(master="local[2]"))
    spark.start()
    try:
        with PortPool() as ports, ControllerCluster(folder / "controllers", ports=ports) as controllers:
            controllers.start()
            controllers.wait_ready(60)
            shop = Shop(folder, ports, controllers.addresses)
            try:
                alive = asyncio.run(shop.live(spark))
            finally:
                shop.close()
        shop.damage()
        damaged = shop.verify(spark, "copies", full=True)
    finally:
        spark.stop()
    (folder / "aligned.html").write_text(page(alive[-1]), encoding="utf-8")
    (folder / "damaged.html").write_text(page(damaged), encoding="utf-8")
    print(damaged.verdict.summary)
    return int(any(run.verdict.exit_code for run in alive) or damaged.verdict.exit_code != 1)


if __name__ == "__main__":
    sys.exit(main())
