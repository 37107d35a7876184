"""What there is in the model world: pods, disks, records, and the questions everybody asks of them."""

import random
from typing import Final

from rocketmq_resources.broker_group import BrokerGroup, parse_broker_group
from rocketmq_resources.decoding import Json

NOW: Final = 1_700_000_000.0
BAD_IMAGE: Final = "registry.example/no-such-image"
"""A pod with it never starts."""


class RefusedError(Exception):
    """A component said no; the operator tries again."""


class Disk:
    """What is in a PVC."""

    def __init__(self, uid: str, size: int) -> None:
        self.uid = uid
        self.size = size
        self.broker_id: int | None = None
        self.log: int = 0
        self.fenced = False
        self.annotations: dict[str, str] = {}
        self.deleting = False


class SimPod:
    """One pod. States: pending -> running -> registered."""

    def __init__(self, uid: str, revision: str) -> None:
        self.uid = uid
        self.revision = revision
        self.ip = ""
        self.running = False
        self.registered = False
        self.deleting = False
        self.labels: dict[str, str] = {}


class Record:
    """What the controllers keep of a replica."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.alive = True


class State:
    """Of one group."""

    def __init__(self, spec: Json, *, seed: int = 0, metadata: Json | None = None) -> None:
        self.random = random.Random(seed)
        self.body: dict[str, object] = {
            "metadata": {"name": "g", "namespace": "ns", "uid": "u", "generation": 1, **(metadata or {})},
            "spec": {"controllerAddr": "c:9878", "namesrvAddr": "n:9876", **spec},
        }
        self.status: Json = {}
        self.gone = False
        self.stateful_set: dict[str, object] | None = None
        self.template = ""
        self.claim_templates: tuple[Json, ...] = ()
        self.replicas = 0
        self.settled = True
        self.sts_uid = ""
        self.objects: dict[tuple[str, str], bytes] = {}
        self.pods: dict[int, SimPod] = {}
        self.disks: dict[int, Disk] = {}
        self.records: dict[int, Record] = {}
        self.in_sync: set[int] = set()
        self.master: int | None = None
        self.epoch = 0
        self.set_epoch = 0
        self.next_id = 1
        self.reachable = True
        self.bad_templates: set[str] = set()
        self.expandable = True
        self.refusals: dict[str, str] = {}
        self.acked = 0
        self.cleaned: list[int] = []
        self.history: list[str] = []
        self._numbers = 0

    @property
    def group(self) -> BrokerGroup:
        return parse_broker_group({**self.body, "status": self.status})

    def is_ready(self, ordinal: int) -> bool:
        pod, disk = self.pods[ordinal], self.disks.get(ordinal)
        return pod.registered and disk is not None and (disk.broker_id in self.in_sync)

    def ordinal_of_id(self, broker_id: int) -> int | None:
        """Whose disk carries the id."""
        return next((ordinal for ordinal, disk in self.disks.items() if disk.broker_id == broker_id), None)

    def _log_of(self, broker_id: int) -> int:
        ordinal = self.ordinal_of_id(broker_id)
        return -1 if ordinal is None else self.disks[ordinal].log

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _uid(self, kind: str) -> str:
        return f"{kind}-{self._number()}"
