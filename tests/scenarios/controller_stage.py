"""The stage for the controller's stories: one leading controller's domain and some brokers, in virtual time.

The brokers are cardboard: they do what a Java broker does at start (1012, 1013, 1003, heartbeat, 1002), beat once a
second while they run, and nothing else by themselves. The controller does what the shell does: it elects when the
master's connection closes, when it is silent for too long, and in a scan every 5 s.

    given 1,2,3 set=1,2    these brokers have started in this order, 1 is master, the set is this; prints the state only
    start 2 [addr=H:P]     the process starts with the identity it has; a running one is restarted
    start 2 lose=1013      the answer to that request gets lost and the process crashes
    kill 2 | hang 2 | resume 2 | break 2    the last: its connection breaks, the process connects again at its next beat
    report 2 epoch=1 max=500   what its heartbeats say from now on
    pass 3.5               seconds go by
    alter 1 epoch=1 set=1,2 set-epoch=1   request 1001 in the name of broker 1
    elect [2] [designate] | clean [ids=1;2] [forced] | replica-info | state
    new-leader heard=2,3 grace=5    another controller leads, which has heard these brokers only
    unclean on|off
"""

from rocketmq_controller.domain import evolve, invariants
from rocketmq_controller.domain.decision import Decision
from rocketmq_controller.domain.liveness import HeartbeatTable
from rocketmq_controller.domain.model import BrokerGroup, BrokerId, Options
from rocketmq_controller.domain.requests.alter_sync_state_set import alter_sync_state_set
from rocketmq_controller.domain.requests.cleaning import clean_broker_data
from rocketmq_controller.domain.requests.elect_master import elect_master, groups_needing_election
from rocketmq_controller.domain.requests.queries import get_replica_info
from rocketmq_controller.domain.requests.registration import apply_broker_id, get_next_broker_id, register_broker
from rocketmq_formats.remoting import controller as api
from rocketmq_formats.remoting.headers import encode_header

NAME, CLUSTER = "broker-a", "C"
TICK = 0.25
SCAN_PERIOD = 5.0


class Broker:
    """A process on a disk: the identity survives, the rest is gone with the process."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.address = f"10.0.0.{number}:10911"
        self.identity: int | None = None
        self.applied: tuple[int, str] | None = None  # the temp file: id and check code
        self.connection: int | None = None
        self.hung = False
        self.next_beat = 0.0
        self.epoch = -1
        self.max_offset = 0


class Stage:
    def __init__(self) -> None:
        self.now = 0.0
        self.group: BrokerGroup | None = None
        self.table = HeartbeatTable()
        self.options = Options()
        self.history = invariants.History()
        self.brokers: dict[int, Broker] = {}
        self.connections = 0
        self.last_scan = 0.0
        self.lines: list[str] = []

    def run(self, command: str) -> list[str]:
        """One line of a story; returns its transcript."""
        verb, *words = command.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        self.lines = []
        getattr(self, "do_" + verb.replace("-", "_"))(plain, options)
        return self.lines or ["ok"]

    # Brokers

    def do_given(self, plain: list[str], options: dict[str, str]) -> None:
        for number in plain[0].split(","):
            self.do_start([number], {})
        if options["set"] != "1":
            self.do_alter(["1"], {"epoch": "1", "set": options["set"], "set-epoch": "1"})
        self.lines = []
        self.do_state([], {})

    def do_start(self, plain: list[str], options: dict[str, str]) -> None:
        broker = self.brokers.setdefault(int(plain[0]), Broker(int(plain[0])))
        if broker.connection is not None:
            self.do_kill(plain, {})
        broker.address = options.get("addr", broker.address)
        self.connections += 1
        broker.connection, broker.hung = self.connections, False
        lost = options.get("lose")
        if broker.identity is None and not self._take_identity(broker, lost):
            self.lines.append(f"broker {broker.number} crashed before it had the answer to {lost}")
            broker.connection = None
            return
        assert broker.identity is not None
        answer = self._answer(
            "1003",
            register_broker(
                self.group,
                api.RegisterBrokerToControllerRequestHeader(
                    cluster_name=CLUSTER,
                    broker_name=NAME,
                    broker_id=broker.identity,
                    broker_address=broker.address,
                ),
                self.table.view(self.now),
                connection_id=broker.connection,
            ),
        )
        if answer.code != 0:
            broker.connection = None
            return
        self._heartbeat(broker)
        assert isinstance(answer.header, api.RegisterBrokerToControllerResponseHeader)
        if answer.header.master_broker_id is None:
            self.do_elect([str(broker.identity)], {})

    def _take_identity(self, broker: Broker, lost: str | None) -> bool:
        if broker.applied is None:
            header = api.GetNextBrokerIdRequestHeader(cluster_name=CLUSTER, broker_name=NAME)
            answer = self._answer("1012", get_next_broker_id(self.group, header)).header
            if lost == "1012":
                return False
            assert isinstance(answer, api.GetNextBrokerIdResponseHeader)
            assert answer.next_broker_id is not None
            broker.applied = answer.next_broker_id, f"{broker.address};{self.now:g}"
        broker_id, check_code = broker.applied
        decision = apply_broker_id(
            self.group,
            api.ApplyBrokerIdRequestHeader(
                cluster_name=CLUSTER,
                broker_name=NAME,
                applied_broker_id=broker_id,
                register_check_code=check_code,
            ),
        )
        self._answer("1013", decision)
        if lost == "1013":
            return False
        assert decision.code == 0
        broker.identity = broker_id
        return True

    def do_kill(self, plain: list[str], _: dict[str, str]) -> None:
        broker = self.brokers[int(plain[0])]
        assert broker.connection is not None
        closed, broker.connection = broker.connection, None
        for key in self.table.on_connection_closed(closed, self.now):
            self._lost(key.broker_id, "its connection closed")

    def do_break(self, plain: list[str], options: dict[str, str]) -> None:
        self.do_kill(plain, options)
        self.connections += 1
        self.brokers[int(plain[0])].connection = self.connections

    def do_hang(self, plain: list[str], _: dict[str, str]) -> None:
        self.brokers[int(plain[0])].hung = True

    def do_resume(self, plain: list[str], _: dict[str, str]) -> None:
        broker = self.brokers[int(plain[0])]
        broker.hung = False
        self._heartbeat(broker)

    def do_report(self, plain: list[str], options: dict[str, str]) -> None:
        broker = self.brokers[int(plain[0])]
        broker.epoch, broker.max_offset = int(options["epoch"]), int(options["max"])
        self._heartbeat(broker)

    def _heartbeat(self, broker: Broker) -> None:
        assert broker.identity is not None
        assert broker.connection is not None
        header = api.BrokerHeartbeatRequestHeader(
            cluster_name=CLUSTER,
            broker_name=NAME,
            broker_id=broker.identity,
            broker_addr=broker.address,
            epoch=broker.epoch,
            max_offset=broker.max_offset,
            heartbeat_timeout_mills=10_000,
        )
        broker.next_beat = self.now + 1.0
        if self.table.on_heartbeat(header, broker.connection, self.now).came_alive:
            self._write(f"{NAME}:{broker.identity} is alive")

    # The controller

    def do_pass(self, plain: list[str], _: dict[str, str]) -> None:
        until = self.now + float(plain[0])
        while self.now < until:
            self.now += TICK
            for broker in self.brokers.values():
                if broker.connection is not None and not broker.hung and broker.next_beat <= self.now:
                    self._heartbeat(broker)
            for key in self.table.expired(self.now):
                self._lost(key.broker_id, "it was silent for too long")
            if self.now - self.last_scan >= SCAN_PERIOD:
                self._scan()

    def do_new_leader(self, _: list[str], options: dict[str, str]) -> None:
        self.table = HeartbeatTable()
        self.table.start_grace(self.now, float(options["grace"]))
        for number in options["heard"].split(","):
            if number:
                self._heartbeat(self.brokers[int(number)])
        self._scan()

    def do_unclean(self, plain: list[str], _: dict[str, str]) -> None:
        self.options = Options(enable_elect_unclean_master=plain == ["on"])

    def _scan(self) -> None:
        self.last_scan = self.now
        state = {} if self.group is None else {NAME: self.group}
        for name in groups_needing_election(state, self.table.view(self.now), self.options):
            self._write(f"the scan finds {name} without a living master")
            self.do_elect([], {})

    def _lost(self, broker_id: int, reason: str) -> None:
        self._write(f"{NAME}:{broker_id} is lost, {reason}")
        if self.group is not None and self.group.master_broker_id == broker_id:
            self.do_elect([], {})

    # Requests

    def do_alter(self, plain: list[str], options: dict[str, str]) -> None:
        header = api.AlterSyncStateSetRequestHeader(
            broker_name=NAME, master_broker_id=int(plain[0]), master_epoch=int(options["epoch"])
        )
        body = api.SyncStateSet(
            sync_state_set=frozenset(map(int, options["set"].split(","))),
            sync_state_set_epoch=int(options["set-epoch"]),
        )
        self._answer("1001", alter_sync_state_set(self.group, header, body, self.table.view(self.now)))

    def do_elect(self, plain: list[str], _: dict[str, str]) -> None:
        numbers = [word for word in plain if word != "designate"]
        header = api.ElectMasterRequestHeader(
            broker_name=NAME,
            broker_id=int(numbers[0]) if numbers else api.NO_BROKER_ID,
            designate_elect="designate" in plain,
        )
        self._answer("1002", elect_master(self.group, header, self.table.view(self.now), self.options))

    def do_clean(self, plain: list[str], options: dict[str, str]) -> None:
        header = api.CleanControllerBrokerDataRequestHeader(
            broker_name=NAME,
            broker_controller_ids_to_clean=options.get("ids"),
            is_clean_living_broker="forced" in plain,
        )
        self._answer("1011", clean_broker_data(self.group, header, self.table.view(self.now)))

    def do_replica_info(self, _: list[str], __: dict[str, str]) -> None:
        self._answer("1004", get_replica_info(self.group))

    def do_state(self, _: list[str], __: dict[str, str]) -> None:
        group = self.group
        if group is None:
            self.lines.append("nothing")
            return
        view = self.table.view(self.now)
        self.lines.append(
            f"master {group.master_broker_id} epoch {group.master_epoch},"
            f" set {_ids(group.sync_state_set)} epoch {group.sync_state_set_epoch}, next id {group.next_broker_id}"
        )
        for broker_id, replica in group.replicas.items():
            self.lines.append(f"  {broker_id} {replica.address} {'alive' if view.alive(NAME, broker_id) else 'dead'}")

    def _answer(self, request: str, decision: Decision) -> Decision:
        """Print the answer, then commit and print the events."""
        parts = [f"{request} -> {int(decision.code)}"]
        if decision.header is not None:
            shown = {k: v for k, v in encode_header(decision.header).items() if k not in {"clusterName", "brokerName"}}
            parts += [f"{key}={value}" for key, value in shown.items()]
        if isinstance(decision.body, api.SyncStateSet):
            parts.append(f"set={_ids(decision.body.sync_state_set)}@{decision.body.sync_state_set_epoch}")
        elif isinstance(decision.body, api.ElectMasterResponseBody):
            parts.append(f"set={_ids(decision.body.sync_state_set or frozenset())}")
        self._write(" ".join(parts) + (f" ({decision.remark})" if decision.remark else ""))
        for event in decision.events:
            before, self.group = self.group, evolve.evolve(self.group, event)
            invariants.check_transition(before, event, self.group, self.options)
            assert self.group is not None
            self.history.observe(self.group)
            fields = [_show(getattr(event, name)) for name in event.__struct_fields__[1:]]
            self._write(f"  {type(event).__name__} {' '.join(fields)}".rstrip())
        return decision

    def _write(self, line: str) -> None:
        self.lines.append(f"{self.now:g}s {line}")


def _show(value: object) -> str:
    return _ids(value) if isinstance(value, frozenset) else str(value)


def _ids(ids: frozenset[BrokerId] | frozenset[int]) -> str:
    return "{" + ",".join(map(str, sorted(ids))) + "}"
