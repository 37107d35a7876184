"""Tells `namesrv_story` to an official name server and keeps what it answers in `namesrv/answers.json`.

python -m tests.golden.namesrv_capture  (from the root; needs java and mvn, takes 20 s)
"""

import json
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rocketmq_demo.apache import jars, servers
from rocketmq_demo.ports import HOST, PortPool
from rocketmq_formats.remoting.command import RemotingCommand, decode_frame, encode_frame
from tests.golden.namesrv_story import STORY

ANSWERS = Path(__file__).parent / "namesrv" / "answers.json"


def main() -> None:
    """Start a name server, tell it the story, write the answers."""
    answers = listen({})
    acting = listen({"supportActingMaster": True})
    ANSWERS.parent.mkdir(exist_ok=True)
    report = {
        "rocketmq": jars.ROCKETMQ_VERSION,
        "answers": answers,
        "with supportActingMaster": {name: answer for name, answer in acting.items() if answer != answers[name]},
    }
    ANSWERS.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    sys.stdout.write(f"{len(answers)} answers in {ANSWERS}\n")


def listen(config: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    """The answers of a server with `config`."""
    with tempfile.TemporaryDirectory() as folder, PortPool() as ports:
        port = ports.single()
        with servers.start_nameserver(Path(folder), port=port, config=config) as server:
            server.wait_port()
            return replay(port)


def replay(port: int) -> dict[str, dict[str, Any]]:
    """Every step's answer by the step's name; bodies as text."""
    connections: dict[str, socket.socket] = {}
    answers: dict[str, dict[str, Any]] = {}
    for number, step in enumerate(STORY):
        if step.code == 0:
            connections.pop(step.connection).close()
        else:
            connection = connections.get(step.connection)
            if connection is None:
                connection = connections[step.connection] = socket.create_connection((HOST, port), timeout=5)
            ext = None if step.ext is None else dict(step.ext)
            asked = RemotingCommand(step.code, 0, number, "JAVA", step.version, None, ext, step.body)
            connection.sendall(encode_frame(asked))
            answer = _read(connection)
            assert step.name not in answers, step.name
            answers[step.name] = {
                "code": answer.code,
                "remark": answer.remark,
                "ext": answer.ext_fields,
                "body": answer.body.decode(),
            }
        if step.settle:
            time.sleep(0.3)
    for connection in connections.values():
        connection.close()
    return answers


def _read(connection: socket.socket) -> RemotingCommand:
    with connection.makefile("rb") as stream:
        size = int.from_bytes(stream.read(4), "big")
        return decode_frame(stream.read(size))


if __name__ == "__main__":
    main()
