"""The official producers and consumers in every way they can be used, for tests that compare what they receive.

Each is a JVM of its own (java/Clients.java) and writes each event to its output, which is read while it runs.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocketmq_demo.apache.processes import COMPILE_LITTLE, SMALL_HEAP, JavaProcess, ProcessDiedError
from tests.gate.patience import patient
from tests.lab.programs import LabProcess

_MAIN = "io.github.rocketmqha.lab.Clients"
_OPTIONS = (*SMALL_HEAP, COMPILE_LITTLE)
IPV6 = ("-Djava.net.preferIPv4Stack=false",)
"""Options with which a JVM of ours uses IPv6 too."""
_POLL = 0.05
_KINDS = frozenset({"sent", "failed", "received", "queues", "replied"})


@dataclass(frozen=True, slots=True)
class Sent:
    """An answered send; a batch is one, with the ids of its messages joined by commas."""

    way: str
    status: str
    message_id: str
    offset_message_ids: str
    queue_id: int
    queue_offset: int


@dataclass(frozen=True, slots=True)
class Received:
    """A message as a consumer saw it; times in milliseconds since 1970."""

    body: str
    topic: str
    tags: str
    queue_id: int
    queue_offset: int
    reconsume_times: int
    born: int
    seen: int


def send(
    folder: Path,
    *,
    nameservers: str,
    topic: str,
    ways: Sequence[str],
    count: int,
    tags: Sequence[str] = (),
    prefix: str = "",
    timeout: float = 60.0,
    options: Sequence[str] = (),
) -> list[Sent]:
    """Send `count` messages in each of `ways` (sync, batch, async, oneway, delayed: by level 1); their bodies are
    `prefix`, the way and a number, their tags those given in turns, their keys "key-<number>". `options`: of the JVM.

    Raises:
        ProcessDiedError: a send failed.
        TimeoutError: it took longer than `timeout` seconds.
    """
    arguments = ["send", "--namesrv", nameservers, "--topic", topic, "--ways", ",".join(ways), "--count", str(count)]
    if tags:
        arguments += ["--tags", ",".join(tags)]
    arguments += ["--prefix", prefix]
    with LabProcess(f"send-{topic}", _MAIN, arguments, folder=folder, options=(*_OPTIONS, *options)) as process:
        code = _ended(process, timeout)
        rows = _rows(process)
        if code != 0 or any(row[0] == "failed" for row in rows):
            raise ProcessDiedError(f"{process.name} ended with {code}:\n{process.tail()}")
    return [Sent(way, status, ids, offsets, int(queue), int(at)) for _, way, status, ids, offsets, queue, at in rows]


def ask(folder: Path, *, nameservers: str, topic: str, count: int, timeout: float = 60.0) -> list[str]:
    """Make `count` requests and wait for the reply to each; the replies' bodies.

    Raises:
        ProcessDiedError: a request got no reply.
        TimeoutError: it took longer than `timeout` seconds.
    """
    arguments = ["request", "--namesrv", nameservers, "--topic", topic, "--count", str(count)]
    with LabProcess(f"request-{topic}", _MAIN, arguments, folder=folder, options=_OPTIONS) as process:
        _join(process, timeout)
        return [body for kind, body, *_ in _rows(process) if kind == "replied"]


class _Consumer(LabProcess):
    @property
    def received(self) -> list[Received]:
        """Everything so far, in the order it came."""
        return [
            Received(body, topic, tags, int(queue), int(offset), int(times), int(born), int(seen))
            for _, body, topic, tags, queue, offset, times, born, seen in self._rows_of("received")
        ]

    @property
    def bodies(self) -> list[str]:
        """Bodies of the received messages."""
        return [message.body for message in self.received]

    def wait_until(self, what: str, condition: Callable[[], bool], timeout: float = 60.0) -> None:
        """Wait until `condition` holds; `what` describes it.

        Raises:
            TimeoutError, ProcessDiedError: it did not hold in time, or this consumer ended.
        """
        deadline = time.monotonic() + patient(timeout)
        while not condition():
            if not self.alive:
                raise ProcessDiedError(f"{self.name} ended with {self.exit_code}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} waited {timeout:g} s for {what}:\n{self.tail()}")
            time.sleep(_POLL)

    def _rows_of(self, kind: str) -> list[list[str]]:
        return [row for row in _rows(self) if row[0] == kind]


class PushConsumer(_Consumer):
    """A member of a group; `finish`, or the end of this process, makes it commit and leave."""

    def __init__(
        self,
        folder: Path,
        *,
        nameservers: str,
        group: str,
        topic: str,
        tags: str = "*",
        again: str | None = None,
        orderly: bool = False,
        options: Sequence[str] = (),
    ) -> None:
        """Messages whose body begins with `again` are refused (RECONSUME_LATER) when they come for the first time.
        `orderly`: a MessageListenerOrderly, which locks its queues. `options`: of the JVM."""
        arguments = ["push", "--namesrv", nameservers, "--group", group, "--topic", topic, "--tags", tags]
        arguments += ["--instance", folder.name]
        if again is not None:
            arguments += ["--again", again]
        if orderly:
            arguments += ["--orderly"]
        super().__init__(
            f"push-{folder.name}", _MAIN, arguments, folder=folder, options=(*_OPTIONS, *options), tethered=False
        )
        self._topic = topic

    @property
    def queues(self) -> frozenset[int] | None:
        """The queues of the topic that are assigned to it; None before the first assignment."""
        assigned = [ids for _, topic, ids in self._rows_of("queues") if topic == self._topic]
        return frozenset(int(queue) for queue in assigned[-1].split(",") if queue) if assigned else None

    def finish(self, timeout: float = 30.0) -> None:
        """Leave the group.

        Raises:
            ProcessDiedError, TimeoutError: it ended badly, or does not end.
        """
        self.close_stdin()
        _join(self, timeout)


class Replier(_Consumer):
    """Replies to each message of a topic with "reply to" and its body; `finish` ends it."""

    def __init__(self, folder: Path, *, nameservers: str, group: str, topic: str) -> None:
        arguments = ["reply", "--namesrv", nameservers, "--group", group, "--topic", topic]
        super().__init__(f"reply-{folder.name}", _MAIN, arguments, folder=folder, options=_OPTIONS, tethered=False)

    @property
    def outcomes(self) -> list[str]:
        """The status of each reply that it sent, or why it failed."""
        return [row[2] if row[0] == "sent" else row[1] for row in _rows(self) if row[0] in {"sent", "failed"}]

    def finish(self, timeout: float = 30.0) -> None:
        """Raises as `PushConsumer.finish`."""
        self.close_stdin()
        _join(self, timeout)


class Committer(LabProcess):
    """A transactional producer that sends nothing and commits each half message of its group that it is asked about."""

    def __init__(self, folder: Path, *, nameservers: str, group: str, topic: str) -> None:
        arguments = ["commit", "--namesrv", nameservers, "--group", group, "--topic", topic]
        super().__init__(f"commit-{folder.name}", _MAIN, arguments, folder=folder, options=_OPTIONS, tethered=False)


class PullConsumer(_Consumer):
    """Takes at least `count` messages, commits what it took, and ends."""

    def __init__(self, folder: Path, *, nameservers: str, group: str, topic: str, count: int, tags: str = "*") -> None:
        arguments = ["pull", "--namesrv", nameservers, "--group", group, "--topic", topic, "--tags", tags]
        arguments += ["--count", str(count)]
        super().__init__(f"pull-{topic}", _MAIN, arguments, folder=folder, options=_OPTIONS)

    def join(self, timeout: float = 60.0) -> None:
        """Wait until it has ended.

        Raises:
            ProcessDiedError, TimeoutError: it ended badly, or does not end.
        """
        _join(self, timeout)


def _join(process: JavaProcess, timeout: float) -> None:
    code = _ended(process, timeout)
    if code != 0:
        raise ProcessDiedError(f"{process.name} ended with {code}:\n{process.tail()}")


def _ended(process: JavaProcess, timeout: float) -> int:
    try:
        return process.wait(patient(timeout))
    except subprocess.TimeoutExpired:  # whose text is the whole class path
        raise TimeoutError(f"{process.name} still runs after {timeout:g} s:\n{process.tail()}") from None


def _rows(process: JavaProcess) -> list[list[str]]:
    """Our lines in its output; the last may be half written, the client library prints some of its own."""
    text = process.output()
    lines = text[: text.rfind("\n") + 1].splitlines()
    return [line.split("\t") for line in lines if line.partition("\t")[0] in _KINDS]
