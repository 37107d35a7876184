"""Records what Java's clients and mqadmin say to a Java broker and name server: `client/*.bin` and its index.

    python -m tests.golden.client_capture        (from the root; needs a JDK and mvn, takes some six minutes)

`capture` records the high-availability side; here are the requests of ordinary applications and operators.
"""

import json
import shutil
import socket
import sys
import tempfile
import time
from pathlib import Path

from rocketmq_demo.apache import jars, servers
from rocketmq_demo.apache.processes import LARGER_HEAP, SMALL_HEAP, JavaProcess
from rocketmq_formats.codes import RequestCode
from tests.golden.recorder import BACK, FRONT, Proxy, Samples, ask
from tests.lab.mqadmin import run_mqadmin

HERE = Path(__file__).parent
NAMESERVER, BROKER = 39876, 39911
TOPIC, GROUP = "golden-topic", "golden-group"
NAMES = {code.value: code.name.lower().replace("_", "-") for code in RequestCode}


def main() -> None:
    for port in (NAMESERVER, BROKER - 2, BROKER, BROKER + 1):
        socket.create_server(("", port)).close()  # raises if somebody is there
    jars.classpath()
    folder = HERE / "client"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    samples = Samples(folder, NAMES, jars.ROCKETMQ_VERSION)
    for serialize in ("JSON", "ROCKETMQ"):
        sys.stderr.write(f"{serialize}\n")
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
            record(Path(work), samples, f"-Drocketmq.serialize.type={serialize}")
    samples.save()
    sys.stderr.write(f"{len(samples.index)} frames\n")


def record(work: Path, samples: Samples, option: str) -> None:
    """One life of a name server and a broker, and everybody who talks to them."""
    proxies = [Proxy(NAMESERVER, "name server", samples)]
    proxies += [Proxy(port, "broker", samples) for port in (BROKER, BROKER - 2)]
    names, small = f"{FRONT}:{NAMESERVER}", [*SMALL_HEAP, option]
    config = {
        "bindAddress": BACK,
        "enableControllerMode": False,
        "brokerRole": "ASYNC_MASTER",
        "brokerId": 0,
        "transactionTimeOut": 1000,
        "transactionCheckInterval": 3000,
    }
    processes = [
        servers.start_nameserver(work / "names", port=NAMESERVER, config={"bindAddress": BACK}, options=small),
        servers.start_broker(
            work / "broker",
            port=BROKER,
            controllers=[],
            nameservers=[NAMESERVER],
            config=config,
            options=[*LARGER_HEAP, option],
        ),
    ]
    try:
        wait_for_broker()
        operators_prepare(work, option, names)
        clients = JavaProcess(
            "clients",
            str(HERE / "GoldenClients.java"),
            [names, TOPIC],
            folder=work / "clients",
            options=small,
            tethered=False,
        )
        processes.append(clients)
        while "offsetMsgId" not in clients.output():
            if not clients.alive:
                raise RuntimeError(clients.tail())
            time.sleep(0.2)
        ids = clients.output().split("offsetMsgId ")[1].split()
        capture_admin_calls(work, option, names, ids[0])
        clients.close_stdin()
        clients.wait(90)
        operators_end(work, option, names)
        refusals(samples)
        processes[1].stop()
    finally:
        for process in reversed(processes):
            process.close()
        for proxy in proxies:
            proxy.close()


def wait_for_broker() -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            if ask(NAMESERVER, 105, {"topic": "TBW102"}).code == 0:
                return
        except OSError:
            pass
        time.sleep(0.3)
    raise TimeoutError("the broker did not register")


def operators_prepare(work: Path, option: str, names: str) -> None:
    broker = f"{FRONT}:{BROKER}"
    run(work, option, "updateTopic", "-n", names, "-b", broker, "-t", TOPIC, "-r", "2", "-w", "2")
    run(work, option, "updateSubGroup", "-n", names, "-b", broker, "-g", GROUP)
    run(work, option, "updateOrderConf", "-n", names, "-t", "golden-order", "-m", "put", "-v", "broker-a:2")


def capture_admin_calls(work: Path, option: str, names: str, message: str) -> None:
    broker = f"{FRONT}:{BROKER}"
    for command in (
        ["topicList"],
        ["topicRoute", "-t", TOPIC],
        ["topicStatus", "-t", TOPIC],
        ["topicClusterList", "-t", TOPIC],
        ["consumerProgress", "-g", GROUP],
        ["consumerConnection", "-g", GROUP],
        ["producerConnection", "-g", "golden-producer", "-t", TOPIC],
        ["brokerStatus", "-b", broker],
        ["haStatus", "-b", broker],
        ["clusterList"],
        ["queryMsgById", "-t", TOPIC, "-i", message],
        ["queryMsgByKey", "-t", TOPIC, "-k", "key-1"],
        ["printMsg", "-t", TOPIC],
        ["getConsumerConfig", "-g", GROUP],
        ["getNamesrvConfig"],
        ["updateBrokerConfig", "-b", broker, "-k", "flushDelayOffsetInterval", "-v", "10000"],
        ["getBrokerConfig", "-b", broker],
        ["wipeWritePerm", "-b", "broker-a"],
        ["addWritePerm", "-b", "broker-a"],
        ["updateKvConfig", "-s", "golden", "-k", "name", "-v", "value"],
        ["deleteKvConfig", "-s", "golden", "-k", "name"],
    ):
        # the name server's address where it is not an argument of the command itself
        run(work, option, command[0], "-n", names, *command[1:])


def operators_end(work: Path, option: str, names: str) -> None:
    broker = f"{FRONT}:{BROKER}"
    run(work, option, "resetOffsetByTime", "-n", names, "-g", GROUP, "-t", TOPIC, "-s", "-1")
    run(work, option, "deleteSubGroup", "-n", names, "-b", broker, "-g", GROUP)
    run(work, option, "deleteTopic", "-n", names, "-c", "DefaultCluster", "-t", TOPIC)


def refusals(samples: Samples) -> None:
    """Answers that nobody above provokes."""

    def provoke(port: int, code: int, ext: dict[str, str] | None, body: bytes = b"") -> None:
        question = {"code": code, "ext": ext, "body": body.decode()}
        samples.keep(ask(port, code, ext, body), code, "answered by Java to a request made by this tool", question)

    topic, group = {"topic": "nobody", "queueId": "0"}, {"consumerGroup": "nobody"}
    pull = {"queueOffset": "0", "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "subVersion": "0"}
    pull = {**topic, **group, **pull, "suspendTimeoutMillis": "0", "subscription": "*"}
    for code, ext in (
        (11, pull),
        (11, {**pull, "topic": "TBW102", "queueOffset": "7"}),
        (11, {**pull, "topic": "TBW102", "queueId": "99"}),
        (14, {**topic, **group}),
        (15, {**topic, **group, "commitOffset": "1"}),
        (29, {**topic, "timestamp": "0"}),
        (30, topic),
        (31, topic),
        (32, topic),
        (33, {"offset": "123456789"}),
        (36, {"offset": "123456789", "group": "nobody", "delayLevel": "0"}),
        (38, group),
        (202, {"topic": "nobody"}),
        (203, group),
        (204, {"producerGroup": "nobody"}),
        (208, group),
        (310, {"a": "g", "b": "bad topic", "c": "", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}),
        (310, {"a": "g"}),
        (906, {}),
        (908, {"masterFlushOffset": "0"}),
    ):
        provoke(BROKER, code, ext)
    for code, ext in (
        (101, {"namespace": "nobody", "key": "k"}),
        (219, {"namespace": "nobody"}),
        (224, {"cluster": "DefaultCluster"}),
        (304, None),
        (322, {"brokerName": "n", "brokerAddr": "1.1.1.1:1", "clusterName": "c", "brokerId": "0"}),
        (901, {"clusterName": "DefaultCluster", "brokerName": "broker-a"}),
        (901, {"clusterName": "nobody", "brokerName": "nobody"}),
    ):
        body = json.dumps({"counter": 0, "stateVersion": 0, "timestamp": 0}).encode() if code == 322 else b""
        provoke(NAMESERVER, code, ext, body)


def run(work: Path, option: str, *arguments: str) -> None:
    result = run_mqadmin(arguments, folder=work / "admin", options=[option])
    sys.stderr.write(f"  {arguments[0]}: {(result.stderr or result.stdout).strip()[:100]!r}\n")


if __name__ == "__main__":
    main()
