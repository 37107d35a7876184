"""Records the golden frames and the golden output of mqadmin from official RocketMQ processes.

    python -m tests.golden.capture        (from the root of the repository; needs java and mvn, takes some four minutes)

Run it when a new RocketMQ version is to be supported; the differences of the files are then the differences of the
protocol. Everything stays on loopback; the ports are fixed so that a new run changes as little as possible.
"""

from __future__ import annotations

import json
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path

from rocketmq_demo.apache import jars
from rocketmq_demo.apache.ledger import Ledger, audit
from rocketmq_demo.apache.processes import SMALL_HEAP
from tests.golden.lab import BROKERS, CLUSTER, CONTROLLERS, GROUP, NAMES, NAMESERVER, Lab, Transcript, wait
from tests.golden.recorder import FRONT, Samples, ask

HERE = Path(__file__).parent


def story(lab: Lab, admin: Transcript) -> None:
    """From an empty cluster to one that has seen everything a controller answers."""
    lab.start_servers()
    lab.provoke(lab.leader() or 0, 1013, apply_ext(2), 2014)  # first id of a group must be 1
    lab.start_broker(1)
    wait("broker 1 as master", 60, lambda: lab.in_sync() == [1])
    lab.start_broker(2)
    wait("the id of broker 2", 60, lambda: next_id(lab) == "3")
    lab.start_broker(3)
    wait("three replicas in sync", 120, lambda: lab.in_sync() == [1, 2, 3])
    leader, follower = f"{FRONT}:{lab.leader()}", f"{FRONT}:{lab.follower() or lab.leader()}"
    names = f"{FRONT}:{NAMESERVER}"
    group = ["-bn", GROUP]
    with Ledger(
        lab.folder / "ledger", nameservers=names, topic="golden", seconds=2, size=64, options=[*SMALL_HEAP, lab.option]
    ) as ledger:
        ledger.join(60)

    audit(lab.folder / "audit", nameservers=names, topic="golden", options=[*SMALL_HEAP, lab.option])

    run = admin.run
    run(lab, "getControllerMetaData", "asked of a follower", ["getControllerMetaData", "-a", follower])
    run(lab, "getSyncStateSet-b", "all in sync", ["getSyncStateSet", "-a", leader, "-b", GROUP])
    run(lab, "getSyncStateSet-c", "all in sync", ["getSyncStateSet", "-a", leader, "-n", names, "-c", CLUSTER])
    run(lab, "getSyncStateSet-unknown", "a name nobody registered", ["getSyncStateSet", "-a", leader, "-b", "nobody"])
    run(lab, "getBrokerEpoch-b", "all in sync", ["getBrokerEpoch", "-n", names, "-b", GROUP])
    run(lab, "getBrokerEpoch-c", "all in sync", ["getBrokerEpoch", "-n", names, "-c", CLUSTER])
    run(lab, "getControllerConfig", "two controllers asked", ["getControllerConfig", "-a", f"{leader};{follower}"])
    change = ["updateControllerConfig", "-a", leader, "-k"]
    run(lab, "updateControllerConfig", "success", [*change, "electMasterMaxRetryCount", "-v", "4"])
    run(lab, "updateControllerConfig-black-list", "refused with 16", [*change, "configStorePath", "-v", "/tmp/x"])
    run(lab, "clusterList", "all in sync", ["clusterList", "-n", names])
    run(lab, "topicRoute", "all in sync", ["topicRoute", "-n", names, "-t", "golden"])
    lab.admin("brokerStatus", "-b", f"{FRONT}:{BROKERS[1]}")
    lab.admin("getBrokerConfig", "-b", f"{FRONT}:{BROKERS[1]}")
    elect = ["electMaster", "-a", leader, "-n", names, "-c", CLUSTER, *group, "-b"]
    run(lab, "electMaster", "success: 2 is alive and in sync", [*elect, "2"])
    run(lab, "electMaster-is-master", "refused with 2011: 2 is master already", [*elect, "2"])
    run(lab, "electMaster-unknown-id", "refused with 2012", [*elect, "9"])
    clean = ["cleanBrokerMetadata", "-a", leader, "-c", CLUSTER]
    run(lab, "cleanBrokerMetadata-alive", "refused with 2009: 3 lives", [*clean, *group, "-b", "3"])
    run(lab, "cleanBrokerMetadata-unknown", "refused with 2009", [*clean, "-bn", "nobody", "-b", "1"])
    # The demoted broker 1 comes back. Broker 3 may not: a slave that registers before the new master does is told the
    # old master's HA address, connects there, and never lets go while that process lives.
    wait("the old master in sync with the new one", 120, lambda: {1, 2} <= set(lab.in_sync()))

    refusals(lab)
    lab.brokers[3].stop()
    wait("the set without 3", 60, lambda: lab.in_sync() == [1, 2])
    run(lab, "getSyncStateSet-one-dead", "3 was stopped", ["getSyncStateSet", "-a", leader, "-b", GROUP])
    run(lab, "cleanBrokerMetadata", "success: 3 is dead", [*clean, *group, "-b", "3"])
    run(lab, "getSyncStateSet-cleaned", "3 was cleaned", ["getSyncStateSet", "-a", leader, "-b", GROUP])
    lab.brokers[2].kill9()
    wait("broker 1 as master again", 60, lambda: lab.master() == 1)
    run(
        lab,
        "getSyncStateSet-failed-over",
        "2 was master and was killed",
        ["getSyncStateSet", "-a", leader, "-b", GROUP],
    )
    run(lab, "getBrokerEpoch-failed-over", "2 was master and was killed", ["getBrokerEpoch", "-n", names, "-b", GROUP])
    lab.brokers[1].kill9()
    time.sleep(2)  # three failed elections in a row leave the group without a master
    lab.provoke(lab.leader() or 0, 1004, {"brokerName": GROUP}, 0)
    run(lab, "getSyncStateSet-no-master", "all are dead", ["getSyncStateSet", "-a", leader, "-b", GROUP])
    run(lab, "electMaster-nobody-alive", "refused with 2012", [*elect, "1"])
    run(lab, "cleanBrokerMetadata-all", "success: the whole group", [*clean, *group])


def refusals(lab: Lab) -> None:
    """Every error code of a controller that the processes above did not cause by themselves."""
    leader, follower = lab.leader() or 0, lab.follower()
    name = {"brokerName": GROUP}
    here = {"clusterName": CLUSTER, **name}
    now = ask(leader, 1004, name).ext or {}
    current = json.loads(ask(leader, 1004, name).body)
    alter = {**name, "masterBrokerId": now["masterBrokerId"], "masterEpoch": now["masterEpoch"], "invokeTime": "0"}

    def wanted(ids: list[int], epoch: int = int(current["syncStateSetEpoch"])) -> bytes:
        return json.dumps({"syncStateSet": ids, "syncStateSetEpoch": epoch}, separators=(",", ":")).encode()

    elect = {**here, "brokerId": "9", "designateElect": "true", "invokeTime": "0"}
    register = {**here, "brokerId": "1", "brokerAddress": "127.0.0.1:30911", "invokeTime": "0"}
    for code, ext in (
        (1001, alter),
        (1002, elect),
        (1003, register),
        (1004, name),
        (1012, here),
        (1013, apply_ext(1)),
        (1006, None),
        (1011, here),
    ):
        if follower is None:
            break
        lab.provoke(
            follower, code, ext, 2007, wanted([1, 2]) if code == 1001 else b'["broker-a"]' if code == 1006 else b""
        )
    other = "1" if now["masterBrokerId"] != "1" else "2"
    lab.provoke(leader, 1001, alter, 2013, wanted(current["syncStateSet"]))
    lab.provoke(leader, 1001, {**alter, "brokerName": "nobody"}, 2013, wanted([1]))
    lab.provoke(leader, 1001, {**alter, "masterBrokerId": other}, 2002, wanted([1, 2, 9]))
    lab.provoke(leader, 1001, {**alter, "masterEpoch": "0"}, 2000, wanted([1, 2, 9]))
    lab.provoke(leader, 1001, alter, 2001, wanted([1, 2, 9], 1))
    lab.provoke(leader, 1001, alter, 2003, wanted([1, 2, 9]))
    lab.provoke(leader, 1001, alter, 2013, wanted([int(other)]))
    lab.provoke(leader, 1002, elect, 2012)
    lab.provoke(leader, 1002, {**elect, "brokerId": now["masterBrokerId"]}, 2011)
    lab.provoke(leader, 1002, {**elect, "brokerName": "nobody"}, 2010)
    lab.provoke(leader, 1003, {**register, "brokerName": "nobody"}, 2010)
    lab.provoke(leader, 1003, {**register, "brokerId": "9"}, 2010)
    lab.provoke(leader, 1004, {"brokerName": "nobody"}, 2008)
    lab.provoke(leader, 1006, None, 1, b"[]")
    lab.provoke(leader, 1006, None, 0, b'["nobody"]')
    lab.provoke(leader, 1009, None, 16, b"configStorePath=/tmp/x\n")
    lab.provoke(leader, 1011, {**here, "isCleanLivingBroker": "false", "invokeTime": "0"}, 2009)
    lab.provoke(leader, 1011, {**here, "isCleanLivingBroker": "false", "brokerControllerIdsToClean": "x"}, 2009)
    lab.provoke(leader, 1013, apply_ext(1), 2014)
    heartbeat = {**here, "brokerAddr": "127.0.0.1:30941", "epoch": "1", "maxOffset": "0", "confirmOffset": "0"}
    lab.provoke(leader, 904, heartbeat, 2005)
    lab.provoke(follower or leader, 904, {**heartbeat, "brokerName": "nobody", "brokerId": "1"}, 0)
    lab.provoke(leader, 9999, None, 3)
    lab.provoke(NAMESERVER, 9999, None, 3)
    lab.provoke(NAMESERVER, 105, {"topic": "nobody"}, 17)
    # 4 has an id but never said that it lives; afterwards nothing of it may remain.
    lab.provoke(leader, 1013, apply_ext(4), 0)
    lab.provoke(leader, 1001, alter, 2006, wanted([1, 2, 3, 4]))
    lab.provoke(
        leader, 1011, {**here, "isCleanLivingBroker": "false", "brokerControllerIdsToClean": "4", "invokeTime": "0"}, 0
    )


def apply_ext(number: int) -> dict[str, str]:
    code = {"registerCheckCode": "127.0.0.1:30941;1700000000000"}
    return {"clusterName": CLUSTER, "brokerName": GROUP, "appliedBrokerId": str(number), **code}


def next_id(lab: Lab) -> str:
    return (ask(lab.leader() or 0, 1012, {"clusterName": CLUSTER, "brokerName": GROUP}).ext or {})["nextBrokerId"]


def main() -> None:
    taken = [NAMESERVER, *CONTROLLERS.values(), *(port + way for port in BROKERS.values() for way in (-2, 0, 1))]
    for port in taken:
        socket.create_server(("", port)).close()  # raises if somebody is there
    jars.classpath()
    frames, prints = HERE / "remoting", HERE / "mqadmin"
    for folder in (frames, prints):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    samples = Samples(frames, NAMES, jars.ROCKETMQ_VERSION)
    for serialize in ("JSON", "ROCKETMQ"):
        print(serialize, file=sys.stderr)
        work = Path(tempfile.gettempdir()) / "rocketmq-golden"
        shutil.rmtree(work, ignore_errors=True)
        transcript = Transcript(prints if serialize == "JSON" else None)
        lab = Lab(work, samples, serialize)
        try:
            story(lab, transcript)
        finally:
            lab.close()
        transcript.save()
    samples.save()


if __name__ == "__main__":
    main()
