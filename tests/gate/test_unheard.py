"""tests/unheard.py: errors that reach no one fail the test in which they happen."""

import os
from collections.abc import Callable

import pytest

from tests.paths import ROOT

pytest_plugins = ["pytester"]

HEAD = """
import asyncio
import gc

import pytest

async def fails():
    raise ValueError("no")
"""
HEARD = {
    "a task whose set is still referred to": (
        """
        KEPT = []

        async def test_it():
            KEPT.append(asyncio.create_task(fails()))
            await asyncio.sleep(0)
        """,
        "Task exception was never retrieved*",
    ),
    "a task that is garbage": (
        """
        async def test_it():
            asyncio.create_task(fails())
            await asyncio.sleep(0.01)
            gc.collect()
        """,
        "Task exception was never retrieved*",
    ),
    "a future": (
        """
        async def test_it():
            future = asyncio.get_running_loop().create_future()
            future.set_exception(ValueError("no"))
            cycle = [future]
            cycle.append(cycle)
        """,
        "Future exception was never retrieved*",
    ),
    "a coroutine": (
        """
        def test_it():
            cycle = [fails()]
            cycle.append(cycle)
        """,
        "coroutine 'fails' was never awaited",
    ),
    "a callback": (
        """
        async def test_it():
            asyncio.get_running_loop().call_soon(lambda: 1 / 0)
            await asyncio.sleep(0)
        """,
        "Exception in callback*",
    ),
    "in another thread": (
        """
        def test_it():
            async def main():
                asyncio.get_running_loop().call_soon(lambda: 1 / 0)
                await asyncio.sleep(0)

            import threading
            thread = threading.Thread(target=asyncio.run, args=(main(),))
            thread.start()
            thread.join()
        """,
        "Exception in callback*",
    ),
    "in the log of a process": (
        """
        def test_it(tmp_path):
            from rocketmq_demo.processes import OwnedProcess

            with OwnedProcess("p", ["echo", "Task exception was never retrieved"], folder=tmp_path) as process:
                process.wait(60)
        """,
        "*out.log: Task exception was never retrieved",
    ),
}
NOT_HEARD = {
    "a module, which no collection of garbage looks at again": """
        async def test_it():
            assert gc.get_freeze_count() > 10_000
        """,
    "awaited": """
        async def test_it():
            with pytest.raises(ValueError):
                await asyncio.create_task(fails())
        """,
    "a process without errors": """
        def test_it(tmp_path):
            from rocketmq_demo.processes import OwnedProcess

            with OwnedProcess("p", ["echo", "ready"], folder=tmp_path) as process:
                process.wait(60)
        """,
    "cancelled at the end": """
        async def test_it():
            asyncio.create_task(asyncio.sleep(1000))
        """,
    "expected": """
        async def test_it(unheard):
            asyncio.get_running_loop().call_soon(lambda: 1 / 0)
            await asyncio.sleep(0)
            assert "division by zero" in unheard[0]
        """,
}


Run = Callable[[dict[str, str]], pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    pytester.makeini(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\nfilterwarnings = error\n"
    )

    def runs(files: dict[str, str]) -> pytest.RunResult:
        dedented = {name: HEAD + "\n".join(line[8:] for line in text.splitlines()) for name, text in files.items()}
        pytester.makepyfile(**dedented)
        return pytester.runpytest_subprocess("-p", "tests.unheard", "-p", "no:cacheprovider")

    return runs


def test_what_reaches_no_one_fails_its_test_and_no_other(run: Run) -> None:
    """In one run, each in a file of its own, with a good test behind it."""
    names = list(HEARD)
    files = {f"test_{number}": HEARD[name][0] for number, name in enumerate(names)}
    result = run(files)
    result.assert_outcomes(passed=len(names), errors=len(names))
    result.stdout.fnmatch_lines_random([HEARD[name][1] for name in names])
    result.stdout.fnmatch_lines_random([f"ERROR test_{number}.py::test_it*" for number in range(len(names))])


def test_what_is_read_or_expected_fails_nothing(run: Run) -> None:
    result = run({f"test_{number}": text for number, text in enumerate(NOT_HEARD.values())})
    result.assert_outcomes(passed=len(NOT_HEARD))
