"""Stories of replicas and their controllers as text (see tests/scenarios/transcripts.py): what each sidecar does."""

from pathlib import Path

import pytest

from rocketmq_sidecar.domain.actions import Request
from rocketmq_sidecar.domain.control.fence import Fence
from tests.scenarios import transcripts
from tests.sidecar.world.node import Node
from tests.sidecar.world.world import STEP, World

STORIES = sorted((Path(__file__).parent / "stories").glob("*.txt"))


class Stage:
    """Runs commands: `start 1`, `kill 1`, `kill-sidecar 1`, `kill-broker 1`, `start-sidecar 1`, `start-broker 1`,
    `cut-link 1`, `reset 1`, `hang 1`, `wake 1`, `stop 1`, `lose-answer 1013` (the next one), `wait order`, `run 3.0`,
    `accepting`, `hand-over 1` and `hand-over 1 2`, `fence 1 reason`, `unfence 1`."""

    def __init__(self) -> None:
        self.world = World()
        self._lost: set[int] = set()
        self.world.controllers.lose = self._lose

    def run(self, line: str) -> list[str]:
        command, *arguments = line.split()
        self.world.trace.clear()
        getattr(self, "_" + command.replace("-", "_"))(*arguments)
        return self.world.trace

    def _lose(self, _node: Node, ask: Request) -> bool:
        lost = int(ask.code) in self._lost
        self._lost.discard(int(ask.code))
        return lost

    def _node(self, number: str) -> Node:
        return self.world.nodes[int(number) - 1]

    def _start(self, *numbers: str) -> None:
        for number in numbers:
            self.world.start(self._node(number))
        self.world.run(STEP)

    def _start_sidecar(self, number: str) -> None:
        self.world.start_sidecar(self._node(number))

    def _start_broker(self, number: str) -> None:
        self.world.start_broker(self._node(number))

    def _kill(self, number: str) -> None:
        self.world.kill(self._node(number))

    def _kill_sidecar(self, number: str) -> None:
        self.world.kill_sidecar(self._node(number))

    def _kill_broker(self, number: str) -> None:
        self.world.kill_broker(self._node(number))

    def _cut_link(self, number: str) -> None:
        self.world.cut_link(self._node(number))

    def _reset(self, number: str) -> None:
        self.world.reset_connections(self._node(number))

    def _hang(self, number: str) -> None:
        self._node(number).hung = True

    def _wake(self, number: str) -> None:
        self._node(number).hung = False
        self.world.run(STEP)

    def _stop(self, number: str) -> None:
        self.world.stop(self._node(number))

    def _hand_over(self, number: str, to: str | None = None) -> None:
        node = self._node(number)
        self.world.hand_over(node, None if to is None else self._node(to))
        self.world.trace += [f"{number}: {one.outcome} {one.master_id or one.reason}" for one in node.handed]
        node.handed.clear()

    def _fence(self, number: str, reason: str) -> None:
        self.world.fence(self._node(number), Fence(reason, 0))

    def _unfence(self, number: str) -> None:
        self.world.fence(self._node(number), None)

    def _lose_answer(self, code: str) -> None:
        self._lost.add(int(code))

    def _wait(self, what: str) -> None:
        assert what == "order"
        self.world.run_until(self.world.in_order)

    def _run(self, seconds: str) -> None:
        self.world.run(float(seconds))

    def _accepting(self) -> None:
        self.world.trace.append(f"accepting: {[node.number for node in self.world.accepting()]}")


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path) -> None:
    transcripts.play(path, Stage().run)


def test_there_are_stories() -> None:
    assert STORIES
