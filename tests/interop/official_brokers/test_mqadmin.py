"""The official mqadmin prints the same with our controllers as with Java's, and rocketmq-admin agrees.

The situations are those of tests/golden/capture.py, in its order, in a group with the same ids. Intended differences
are explained where they show."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from rocketmq_formats import broker_identity
from rocketmq_formats.broker_identity import BrokerIdentity
from tests.golden.lab import CLUSTER, CONTROLLERS, GROUP
from tests.interop.golden_prints import comparable, configurations, golden, golden_names
from tests.interop.lab import Group, GroupView, Lab

pytestmark = [pytest.mark.interop, pytest.mark.in_order, pytest.mark.timeout(600, func_only=True)]


class Tools:
    """mqadmin and rocketmq-admin with a controller that is not the leader, unless stated otherwise."""

    def __init__(self, lab: Lab, group: Group) -> None:
        self.lab, self.group = lab, group
        self.leader = lab.controllers.wait_leader()
        self.follower = next(member for member in lab.controllers.ports if member != self.leader)
        self.leader_address = lab.controllers[self.leader].address
        self.follower_address = lab.controllers[self.follower].address

    @property
    def names(self) -> dict[str, str]:
        """The owner of each address, in the recording's words."""
        found = {process.address: f"<{process.member}>" for process in self.lab.controllers}
        found |= {broker.address: f"<broker {broker.identity.broker_id}>" for broker in self.group.brokers}
        return found | {self.lab.nameserver_address: "<name server>"}

    def compare(self, name: str, *arguments: str) -> str:
        """Run mqadmin; it must print what was recorded as `name`. Returns the output."""
        printed, complaint = self.lab.mqadmin(*arguments)
        expected = golden(f"{name}.txt")
        assert self.comparable(printed) == comparable(expected, golden_names()), (name, complaint)
        assert complaint == "" or expected == ""
        return printed

    def compare_read(self, name: str, *arguments: str) -> str:
        """As `compare`, and rocketmq-admin must print the same facts."""
        printed = self.compare(name, *arguments)
        own = self.own(*arguments)
        assert own.returncode == 0, own.stderr
        assert comparable(own.stdout, {}) == comparable(printed, {})
        return printed

    def compare_refusal(self, name: str, *arguments: str) -> None:
        """Run mqadmin; it must fail with what was recorded as `name`, and rocketmq-admin with the same reason."""
        printed, complaint = self.lab.mqadmin(*arguments)
        expected = golden(f"{name}.stderr.txt")
        assert (printed, complaint) == ("", expected)
        own = self.own(*arguments)
        reason = expected.partition("DESC: ")[2].splitlines()[0]
        assert (own.returncode, own.stdout) == (1, "")
        assert reason in own.stderr

    def comparable(self, text: str) -> str:
        return comparable(text, self.names)

    def own(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """rocketmq-admin takes mqadmin's arguments as they are."""
        command = [sys.executable, "-m", "rocketmq_admin", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def group(lab: Lab) -> Iterator[Group]:
    """The lab's only one, because the tools print a whole cluster."""
    for other in lab.groups:
        other.close()
    brokers = Group(lab, GROUP)
    try:
        brokers.form()
        yield brokers
    finally:
        brokers.close()


@pytest.fixture(scope="module")
def tools(lab: Lab, group: Group) -> Tools:
    return Tools(lab, group)


def test_three_official_brokers_form_a_group(group: Group) -> None:
    assert group.view == GroupView(
        master_id=1,
        master_epoch=1,
        sync_state_set_epoch=group.view.sync_state_set_epoch,
        in_sync=frozenset({1, 2, 3}),
        addresses={broker.identity.broker_id: broker.address for broker in group.brokers},
        alive=frozenset({1, 2, 3}),
    )
    assert sorted(broker.identity.broker_id for broker in group.brokers) == [1, 2, 3]
    for broker in group.brokers:
        assert broker.identity == BrokerIdentity(CLUSTER, GROUP, broker.identity.broker_id)
        assert not broker.identity_file.with_name(broker_identity.TEMPORARY_FILE_NAME).exists()


def test_get_controller_meta_data(tools: Tools) -> None:
    printed = tools.compare_read("getControllerMetaData", "getControllerMetaData", "-a", tools.follower_address)
    assert f"#ControllerLeaderId\t{tools.leader}\n#ControllerLeaderAddress\t{tools.leader_address}\n" in printed


def test_get_sync_state_set(tools: Tools, lab: Lab) -> None:
    asked = ["getSyncStateSet", "-a", tools.follower_address]
    tools.compare_read("getSyncStateSet-b", *asked, "-b", GROUP)
    tools.compare_read("getSyncStateSet-c", *asked, "-n", lab.nameserver_address, "-c", CLUSTER)
    tools.compare("getSyncStateSet-unknown", *asked, "-b", "nobody")


def test_get_broker_epoch(tools: Tools, lab: Lab) -> None:
    asked = ["getBrokerEpoch", "-n", lab.nameserver_address]
    tools.compare_read("getBrokerEpoch-b", *asked, "-b", GROUP)
    tools.compare_read("getBrokerEpoch-c", *asked, "-c", CLUSTER)


NOT_OURS = {
    "bindAddress", "controllerRequestThreadPoolQueueCapacity", "controllerThreadPoolNums", "enableShutdownGracefully",
    "jraftConfig", "listenPort", "mappedFileSize", "metricGrpcExporterIntervalInMills",
    "metricGrpcExporterTimeOutInMills", "metricLoggingExporterIntervalInMills", "metricsExporterType",
    "metricsGrpcExporterHeader", "metricsGrpcExporterTarget", "metricsInDelta", "serverAsyncSemaphoreValue",
    "serverCallbackExecutorThreads", "serverChannelMaxIdleTimeSeconds", "serverNettyWorkerGroupEnable",
    "serverOnewaySemaphoreValue", "serverPooledByteBufAllocatorEnable", "serverSelectorThreads",
    "serverSocketBacklog", "serverSocketRcvBufSize", "serverSocketSndBufSize", "serverWorkerThreads",
    "shutdownWaitTimeSeconds", "useEpollNativeSelector", "writeBufferHighWaterMark", "writeBufferLowWaterMark",
}  # fmt: skip
"""Java's keys for Netty, DLedger, JRaft and other exporters."""
OF_THIS_LAB = {
    "configStorePath", "controllerDLegerPeers", "controllerStorePath", "metricsPromExporterHost",
    "metricsPromExporterPort", "rocketmqHome",
}  # fmt: skip
"""Keys whose values are this run's paths and ports."""


def test_get_controller_config(tools: Tools) -> None:
    asked = ["getControllerConfig", "-a", f"{tools.leader_address};{tools.follower_address}"]
    printed = configurations(tools.lab.mqadmin(*asked)[0])
    java = configurations(golden("getControllerConfig.txt"))[f"127.0.0.1:{CONTROLLERS['n0']}"]
    members = {tools.leader_address: tools.leader, tools.follower_address: tools.follower}
    assert printed.keys() == members.keys()
    for address, values in printed.items():
        assert java.keys() - values.keys() == NOT_OURS
        same = {key: value for key, value in java.items() if key not in NOT_OURS | OF_THIS_LAB}
        same["controllerDLegerSelfId"] = members[address]
        assert {key: values[key] for key in same} == same
    own = tools.own(*asked)
    assert own.returncode == 0, own.stderr
    assert configurations(own.stdout) == printed


def test_update_controller_config(tools: Tools) -> None:
    change = ["updateControllerConfig", "-a", tools.leader_address, "-k"]
    # The recording's address is that of its leader.
    expected = golden("updateControllerConfig.txt").replace(f"127.0.0.1:{CONTROLLERS['n1']}", tools.leader_address)
    assert tools.lab.mqadmin(*change, "electMasterMaxRetryCount", "-v", "4") == (expected, "")
    assert retries(tools) == {tools.leader_address: "4", tools.follower_address: "3"}
    own = tools.own(*change, "electMasterMaxRetryCount", "-v", "3")
    assert (own.returncode, own.stdout) == (0, expected.replace(" : 4", " : 3"))
    assert retries(tools) == {tools.leader_address: "3", tools.follower_address: "3"}
    tools.compare_refusal("updateControllerConfig-black-list", *change, "configStorePath", "-v", "/tmp/x")


def retries(tools: Tools) -> dict[str, str]:
    asked = ["getControllerConfig", "-a", f"{tools.leader_address};{tools.follower_address}"]
    found = configurations(tools.own(*asked).stdout)
    return {address: values["electMasterMaxRetryCount"] for address, values in found.items()}


def test_election_and_cleaning_by_hand(tools: Tools, group: Group, lab: Lab) -> None:
    """One story, as recorded: 2 is made master, 3 stops and is forgotten, 2 dies, 1 dies, the group is forgotten."""
    before = group.whole()
    assert (before.master_id, before.master_epoch) == (1, 1)
    read = ["getSyncStateSet", "-a", tools.follower_address, "-b", GROUP]
    group_flags = ["-c", CLUSTER, "-bn", GROUP]
    elect = ["electMaster", "-a", tools.follower_address, "-n", lab.nameserver_address, *group_flags, "-b"]
    clean = ["cleanBrokerMetadata", "-a", tools.follower_address]

    tools.compare("electMaster", *elect, "2")
    now = group.view
    assert (now.master_id, now.master_epoch) == (2, 2)
    assert now.sync_state_set_epoch > before.sync_state_set_epoch
    tools.compare_refusal("electMaster-is-master", *elect, "2")
    tools.compare_refusal("electMaster-unknown-id", *elect, "9")
    tools.compare_refusal("cleanBrokerMetadata-alive", *clean, *group_flags, "-b", "3")
    tools.compare_refusal("cleanBrokerMetadata-unknown", *clean, "-c", CLUSTER, "-bn", "nobody", "-b", "1")
    # Not 3: see Group.whole; it stops now anyway.
    group.wait("the old master in sync with the new one", lambda view: view.in_sync >= {1, 2}, 120)

    group.broker(3).process.stop()
    group.wait("the set without 3", lambda view: view.in_sync == {1, 2} == view.alive, 60)
    tools.compare_read("getSyncStateSet-one-dead", *read)
    tools.compare("cleanBrokerMetadata", *clean, *group_flags, "-b", "3")
    tools.compare_read("getSyncStateSet-cleaned", *read)

    group.broker(2).process.kill9()
    after = group.wait("broker 1 as master again", lambda view: view.master_id == 1, 60)
    assert (after.master_epoch, after.in_sync) == (3, frozenset({1}))
    tools.compare_read("getSyncStateSet-failed-over", *read)

    group.broker(1).process.kill9()
    group.wait("nobody alive", lambda view: not view.alive, 60)
    # Java forgets the master and uses up an epoch per attempt; ours keeps it, so the first of the set to return
    # continues.
    printed, complaint = lab.mqadmin(*read)
    java = comparable(golden("getSyncStateSet-no-master.txt"), golden_names())
    ours = java.replace("#MasterBrokerId\tnull\n#MasterAddr\tnull\n", "#MasterBrokerId\t1\n#MasterAddr\t<broker 1>\n")
    assert (tools.comparable(printed), complaint) == (ours, "")
    assert group.view.master_epoch == after.master_epoch
    tools.compare_refusal("electMaster-nobody-alive", *elect, "1")
    tools.compare("cleanBrokerMetadata-all", *clean, *group_flags)
    tools.compare("getSyncStateSet-unknown", *read)
