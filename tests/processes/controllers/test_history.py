"""The checker of the kill -9 test finds each kind of violation."""

import pytest

from tests.processes.history import Seen, falling, violations


def write(version: int, began: float, ended: float, value: str | None = "v", register: str = "g") -> Seen:
    return Seen(register, version, value, began, ended, wrote=True)


def read(version: int, began: float, ended: float, value: str | None = "v", register: str = "g") -> Seen:
    return Seen(register, version, value, began, ended)


@pytest.mark.parametrize(
    "history",
    [
        [],
        [write(1, 0, 1), write(2, 2, 3), read(2, 4, 5)],
        [write(2, 0, 9, "b"), write(1, 1, 8, "a"), read(1, 2, 3, "a"), read(2, 4, 5, "b")],
        [write(1, 0, 1), read(7, 2, 3)],  # others wrote in between
        [read(5, 0, 1), write(1, 2, 3, register="h")],
        [write(3, 0, 1, None), read(3, 2, 3, "a"), read(3, 2, 3, "a")],
    ],
)
def test_what_can_be(history: list[Seen]) -> None:
    assert violations(history) == []


@pytest.mark.parametrize(
    ("history", "complaint"),
    [
        ([write(1, 0, 9), write(1, 0, 9)], "written twice"),
        ([write(1, 0, 9, "a"), read(1, 0, 9, "b")], "several values"),
        ([write(2, 0, 1), write(1, 2, 3)], "against real time"),
        ([read(2, 0, 1), write(2, 2, 3)], "against real time"),
        ([write(2, 0, 1), read(1, 2, 3)], "against real time"),
        ([write(1, 0, 9), write(3, 1, 2), read(2, 3, 4)], "against real time"),
    ],
)
def test_what_cannot_be(history: list[Seen], complaint: str) -> None:
    assert any(complaint in trouble for trouble in violations(history))


def test_falling() -> None:
    assert falling([(1, 1), (2, 1), (5, 3)]) == []
    assert falling([(1, 2), (2, 1)]) == ["(2, 1) follows (1, 2)"]
