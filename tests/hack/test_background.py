"""hack/background.py: which tasks would fail unheard."""

import pytest

from tests.paths import ROOT
from tests.scripts import load_script

background = load_script(ROOT / "hack" / "background.py")


def problems(text: str) -> list[str]:
    return list(background.problems("f", text))


@pytest.mark.parametrize(
    "line",
    [
        "asyncio.create_task(work())",
        "task = asyncio.create_task(work())",
        "self._task = asyncio.get_running_loop().create_task(work())",
        "return asyncio.ensure_future(work())",
        "create_task(work())",
        "asyncio.run_coroutine_threadsafe(work(), loop)",
        "loop.run_in_executor(None, work)",
        "background.awaited(work(), 'x')",
    ],
)
def test_whose_failure_would_not_be_reported(line: str) -> None:
    assert len(problems(f"async def it():\n    {line}\n")) == 1


@pytest.mark.parametrize(
    "line",
    [
        "background.start(work(), 'x')",
        "return background.awaited(work(), 'x')",
        "await loop.run_in_executor(None, work)",
        "async with asyncio.timeout(9), asyncio.TaskGroup() as group:\n        group.create_task(work())",
    ],
)
def test_whose_failure_is_reported(line: str) -> None:
    assert problems(f"async def it():\n    {line}\n") == []


def test_a_group_does_not_cover_what_is_beside_it() -> None:
    text = "async def it():\n    async with asyncio.TaskGroup() as group:\n        loop.create_task(work())\n"
    assert len(problems(text)) == 1
