"""A push consumer of the C++ client: prints "ready", then one line of JSON for each message, until standard input ends.

    python consumer.py NAMESERVER GROUP TOPIC EXPRESSION cluster|broadcast|orderly

A process of its own: the library's threads and its log file (in HOME) do not belong in a test process.
"""

import json
import sys

from rocketmq.client import MessageModel, PushConsumer, RecvMessage


def main() -> None:
    nameserver, group, topic, expression, mode = sys.argv[1:]
    model = MessageModel.BROADCASTING if mode == "broadcast" else MessageModel.CLUSTERING
    consumer = PushConsumer(group, orderly=mode == "orderly", message_model=model)
    consumer.set_namesrv_addr(nameserver)
    consumer.subscribe(topic, on_message, expression)
    consumer.start()
    say("ready")
    sys.stdin.read()
    consumer.shutdown()


def on_message(message: RecvMessage) -> None:
    fields = {"body": message.body.decode(), "tags": message.tags.decode()}
    say(json.dumps({**fields, "queueId": message.queue_id, "offset": message.queue_offset}))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
