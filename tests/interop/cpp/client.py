"""The C++ client as a push consumer or a producer: prints "ready", then one line of JSON for each message that was
received or acknowledged, until standard input ends.

    python client.py NAMESERVER GROUP TOPIC EXPRESSION cluster|broadcast|orderly|send

A producer sends a message each 100 ms, with the tags of EXPRESSION in turns, and each until it is acknowledged.
A process of its own: the library's threads and its log file (in HOME) do not belong in a test process.
"""

import itertools
import json
import sys
import threading

from rocketmq.client import Message, MessageModel, Producer, PushConsumer, RecvMessage, SendStatus
from rocketmq.exceptions import RocketMQException

PERIOD = 0.1


def main() -> None:
    nameserver, group, topic, expression, mode = sys.argv[1:]
    if mode == "send":
        send(nameserver, group, topic, expression.split(" || "))
    else:
        consume(nameserver, group, topic, expression, mode)


def consume(nameserver: str, group: str, topic: str, expression: str, mode: str) -> None:
    model = MessageModel.BROADCASTING if mode == "broadcast" else MessageModel.CLUSTERING
    consumer = PushConsumer(group, orderly=mode == "orderly", message_model=model)
    consumer.set_namesrv_addr(nameserver)
    consumer.subscribe(topic, on_message, expression)
    consumer.start()
    say("ready")
    sys.stdin.read()
    consumer.shutdown()


def on_message(message: RecvMessage) -> None:
    tell(message.body.decode(), message.tags.decode(), message.queue_id, message.queue_offset)


def send(nameserver: str, group: str, topic: str, tags: list[str]) -> None:
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set())).start()
    producer = Producer(group)
    producer.set_namesrv_addr(nameserver)
    producer.start()
    say("ready")
    for number in itertools.count():
        message = Message(topic)
        message.set_tags(tags[number % len(tags)])
        message.set_body(f"cpp {number}")
        while not ended.wait(PERIOD):
            try:
                result = producer.send_sync(message)
            except RocketMQException as error:
                sys.stderr.write(f"{error}\n")
                continue
            if result.status == SendStatus.OK:
                tell(
                    f"cpp {number}", tags[number % len(tags)], -1, result.offset
                )  # the client does not say which queue
                break
        if ended.is_set():
            break
    producer.shutdown()


def tell(body: str, tags: str, queue_id: int, offset: int) -> None:
    say(json.dumps({"body": body, "tags": tags, "queueId": queue_id, "offset": offset}))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
