"""What happens in the model world by itself: StatefulSet controller, kubelet, brokers, controllers. `step` does one of
the things that could happen next."""

from collections.abc import Callable

from rocketmq_resources import names
from rocketmq_resources.quantity import parse_quantity
from tests.operator.model.state import Disk, Record, SimPod, State


class Happenings(State):
    """Any order is possible."""

    def choices(self) -> list[Callable[[], None]]:
        """Everything that could happen next without anybody's fault."""
        found: list[Callable[[], None]] = []
        if self.stateful_set is not None and not self.settled:
            found.append(self._settle)
        for ordinal, pod in self.pods.items():
            if pod.deleting or (ordinal >= self.replicas and self.stateful_set is not None):
                found.append(lambda ordinal=ordinal: self.stop_pod(ordinal))  # type: ignore[misc]  # bound now
            elif not pod.running and pod.revision not in self.bad_templates:
                found.append(lambda ordinal=ordinal: self._start(ordinal))  # type: ignore[misc]
            elif pod.running and not pod.registered and self.reachable:
                found.append(lambda ordinal=ordinal: self._register(ordinal))  # type: ignore[misc]
        if self.stateful_set is not None and self.settled:
            for ordinal in range(self.replicas):
                disk = self.disks.get(ordinal)
                if ordinal not in self.pods and (disk is None or not disk.deleting):
                    found.append(lambda ordinal=ordinal: self._create(ordinal))  # type: ignore[misc]
        found.extend(self._consensus())
        return found

    def _consensus(self) -> list[Callable[[], None]]:
        found: list[Callable[[], None]] = []
        if not self.reachable:
            return found
        living = {one for one, record in self.records.items() if record.alive}
        if self.master not in living:
            able = sorted(self.in_sync & living)
            found.extend(lambda one=one: self._elect(one) for one in able)  # type: ignore[misc]
            return found
        for one in sorted(living - self.in_sync):
            found.append(lambda one=one: self._join(one))  # type: ignore[misc]
        if self.in_sync - living and (not self._strict or len(self.in_sync & living) > 1):
            found.append(self._shrink)
        found.append(self._write)
        return found

    @property
    def _strict(self) -> bool:
        """Then an election keeps the SyncStateSet, and a master that is alone does not make it smaller."""
        return self.group.spec.durability == "strict"

    def step(self) -> bool:
        """One of the choices; False: nothing but writes could happen."""
        choices = self.choices()
        if not choices:
            return False
        self.random.choice(choices)()
        return any(choice != self._write for choice in choices)

    def quiet(self) -> bool:
        return all(choice == self._write for choice in self.choices())

    def _settle(self) -> None:
        self.settled = True

    def _create(self, ordinal: int) -> None:
        if ordinal not in self.disks:
            templates = {
                one["metadata"]["name"]: parse_quantity(one["spec"]["resources"]["requests"]["storage"])  # type: ignore[index]
                for one in self.claim_templates
            }
            self.disks[ordinal] = Disk(self._uid("pvc"), templates["data"])
        self.pods[ordinal] = SimPod(self._uid("pod"), self.template)

    def _start(self, ordinal: int) -> None:
        pod = self.pods[ordinal]
        pod.running = True
        pod.ip = f"10.0.0.{self._number()}"

    def _register(self, ordinal: int) -> None:
        pod, disk = self.pods[ordinal], self.disks[ordinal]
        if disk.broker_id is None:
            disk.broker_id, self.next_id = self.next_id, self.next_id + 1
        elif disk.broker_id not in self.records:
            return  # 2008: the controllers have forgotten it
        pod.registered = True
        address = f"{pod.ip}:{names.PORT_BROKER}"
        self.records.setdefault(disk.broker_id, Record(address))
        self.records[disk.broker_id].address = address
        self.records[disk.broker_id].alive = True
        if self.master is None and not self.in_sync:
            self.in_sync = {disk.broker_id}
            self._elect(disk.broker_id)

    def stop_pod(self, ordinal: int) -> None:
        """The pod ends; its volume goes with it if that was asked for."""
        self._mark_unreachable(ordinal)
        del self.pods[ordinal]
        if self.disks[ordinal].deleting:
            del self.disks[ordinal]

    def crash(self, ordinal: int) -> None:
        """The containers restart in place."""
        self._mark_unreachable(ordinal)
        self.pods[ordinal].running = self.pods[ordinal].registered = False

    def _mark_unreachable(self, ordinal: int) -> None:
        broker_id = self.disks[ordinal].broker_id if self.pods[ordinal].registered else None
        if broker_id in self.records:
            self.records[broker_id].alive = False

    def _elect(self, broker_id: int) -> None:
        self.master, self.epoch, self.set_epoch = broker_id, self.epoch + 1, self.set_epoch + 1
        if not self._strict or broker_id not in self.in_sync:
            self.in_sync = {broker_id}
        log = self._log_of(broker_id)
        assert log >= self.acked, f"AckedSurvives: {broker_id} has {log}, {self.acked} were acknowledged"
        for one, record in self.records.items():
            if record.alive and one != broker_id:
                self._truncate(one, log)

    def _truncate(self, broker_id: int, log: int) -> None:
        ordinal = self.ordinal_of_id(broker_id)
        if ordinal is not None:
            self.disks[ordinal].log = min(self.disks[ordinal].log, log)

    def _join(self, broker_id: int) -> None:
        ordinal = self.ordinal_of_id(broker_id)
        assert ordinal is not None
        assert self.master is not None
        self.disks[ordinal].log = self._log_of(self.master)
        self.in_sync.add(broker_id)
        self.set_epoch += 1

    def _shrink(self) -> None:
        self.in_sync = {one for one in self.in_sync if self.records[one].alive}
        self.set_epoch += 1

    def _write(self) -> None:
        """A producer sends one message; it is acknowledged when every member of the set has it, and they are enough."""
        assert self.master is not None
        ordinal = self.ordinal_of_id(self.master)
        living = [one for one in self.in_sync if self.records[one].alive]
        if ordinal is None or self.disks[ordinal].fenced or len(living) < len(self.in_sync):
            return
        if len(living) < self.group.min_in_sync_replicas:
            return
        log = self.disks[ordinal].log + 1
        for one in living:
            place = self.ordinal_of_id(one)
            assert place is not None
            self.disks[place].log = log
        self.acked = log
