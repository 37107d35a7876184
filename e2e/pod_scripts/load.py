"""Runs in a pod: sends numbered messages until it is stopped, and reads everything back on request.

`load.py run` writes each acknowledged number, with the time, into a ledger. A failed send is not retried; the next
number is sent. With MOST it rests when so many are acknowledged. `load.py now` prints its clock as JSON. `load.py
report SINCE` reads the whole topic and prints JSON about what was acknowledged until then: `lost` numbers, `duplicated`
ones, and since SINCE (of `load.py now`) how many sends `failed`, and the longest time without an acknowledgement.
Mounted from a ConfigMap into any image that has the project's packages.
"""

import asyncio
import json
import os
import sys
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

from rocketmq_client.errors import ClientError
from rocketmq_client.producer import Producer
from rocketmq_client.reading import read_all
from rocketmq_client.routes import Routes
from rocketmq_formats.codes import RequestCode
from rocketmq_formats.remoting.broker_admin import CreateTopicRequestHeader, TopicRequestHeader
from rocketmq_formats.remoting.command import RemotingCommand, request
from rocketmq_runtime.remoting.client import RemotingClient, RemotingError

NAMESERVERS = os.environ["NAMESRV_ADDR"].split(";")
BROKER_NAME = os.environ["BROKER_NAME"]
TOPIC = f"ledger-{BROKER_NAME}"
LEDGER = Path("/tmp/ledger")
FAILURES = Path("/tmp/failures")
REPLICAS = int(os.environ["REPLICAS"])
LANES = int(os.environ["LANES"])
PATIENCE = 0.5
"""Seconds that one send may take; a hung master costs so much once."""
PAUSE = 0.01
READ_SECONDS = 60.0
READ_AGAIN_SECONDS = 20.0
PACE = float(os.environ["PACE"])
"""Seconds that each of the lanes rests after a send."""
MOST = int(os.environ.get("MOST", "0")) or 10**9
BODY = int(os.environ.get("BODY", "200"))
"""Bytes of a message."""


async def run() -> None:
    """Make the topic on this group alone, then send until killed."""
    await make_topic()
    numbers, acknowledged = iter(range(10**9)), 0
    with LEDGER.open("a", buffering=1) as ledger, FAILURES.open("a", buffering=1) as failures:
        async with Producer(NAMESERVERS, group="ledger-producer", attempts=1, timeout=PATIENCE) as producer:

            async def lane() -> None:
                nonlocal acknowledged
                while acknowledged < MOST:
                    number = next(numbers)
                    try:
                        result = await producer.send(TOPIC, b"%d %b" % (number, b"." * BODY))
                    except (ClientError, RemotingError) as error:
                        print(f"{time.time():.3f} {number} {error}", flush=True)
                        failures.write(f"{time.monotonic():.4f}\n")
                        await asyncio.sleep(2 * PAUSE)
                        continue
                    if result.acknowledged:
                        acknowledged += 1
                        ledger.write(f"{number} {time.monotonic():.4f}\n")
                    await asyncio.sleep(PACE)

            await asyncio.gather(*(lane() for _ in range(LANES)))
            await asyncio.Event().wait()  # a pod that ends is started again


async def make_topic() -> None:
    """Returns when every replica knows it: a slave that is elected before would not."""
    client = RemotingClient()
    routes = Routes(client, NAMESERVERS)
    create = CreateTopicRequestHeader(
        topic=TOPIC, default_topic="TBW102", read_queue_nums=4, write_queue_nums=4, perm=6
    )
    questions = {
        0: request(RequestCode.UPDATE_AND_CREATE_TOPIC, create),
        1: request(RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader(topic=TOPIC)),
    }
    try:
        while True:
            try:
                replicas = (await routes.cluster_info()).broker_addr_table[BROKER_NAME].broker_addrs
                answers = [
                    await client.call(address, questions[min(int(number), 1)], timeout=PATIENCE)
                    for number, address in sorted(replicas.items())
                ]
            except (ClientError, RemotingError, LookupError) as error:
                print(f"topic not made yet: {error}", flush=True)
            else:
                if len(answers) >= REPLICAS and all(done(answer) for answer in answers):
                    return
            await asyncio.sleep(10 * PAUSE)
    finally:
        await client.close()


def done(answer: RemotingCommand) -> bool:
    """Whether a broker did as it was asked."""
    return answer.code == 0


async def report(since: float) -> dict[str, object]:
    """What became of everything acknowledged until now."""
    # The last line may be half written.
    rows = [line.split() for line in LEDGER.read_text().split("\n")[:-1]]
    failed = sum(float(at) >= since for at in FAILURES.read_text().split("\n")[:-1])
    now = time.monotonic()
    acknowledged = {int(number) for number, _ in rows}
    deadline = now + READ_AGAIN_SECONDS
    while True:
        found = await read()
        # An official broker answers a send a moment before consumers can see the message.
        if acknowledged <= found.keys() or time.monotonic() > deadline:
            break
        await asyncio.sleep(1.0)
    times = sorted(at for at in (float(text) for _, text in rows) if at >= since)
    gaps = [later - earlier for earlier, later in pairwise([since, *times, now])]
    return {
        "acknowledged": len(acknowledged),
        "lost": sorted(acknowledged - found.keys())[:100],
        "duplicated": sorted(number for number, copies in found.items() if copies > 1)[:100],
        "failed": failed,
        "longestGap": round(max(gaps), 3),
        "silence": round(now - max(times, default=since), 3),
    }


async def read() -> Counter[int]:
    """Every number that is in the topic, and how often."""
    client = RemotingClient()
    try:
        async with asyncio.timeout(READ_SECONDS):
            messages = await read_all(client, Routes(client, NAMESERVERS), TOPIC, group="ledger-audit")
    finally:
        await client.close()
    return Counter(int(message.body.partition(b" ")[0]) for message in messages)


def main() -> int:
    """Run the command; returns the exit code."""
    match sys.argv[1:]:
        case ["run"]:
            asyncio.run(run())
        case ["now"]:
            print(json.dumps({"now": time.monotonic()}))
        case ["report", since]:
            print(json.dumps(asyncio.run(report(float(since)))))
        case _:
            print("usage: load.py run | now | report SINCE", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
