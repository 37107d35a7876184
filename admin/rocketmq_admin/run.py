"""Runs one command once or every few seconds: result to standard output, each problem as one line to standard error."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rocketmq_admin.caller import Caller
from rocketmq_admin.errors import AdminError
from rocketmq_runtime import terminal
from rocketmq_runtime.client import RemotingClient

PROGRAM = "rocketmq-admin"


@dataclass(frozen=True)
class Report:
    """What a command has to say; with problems, `text` is what could be had in spite of them."""

    text: str
    problems: tuple[AdminError, ...] = ()

    @property
    def exit_code(self) -> int:
        """The first problem's."""
        return self.problems[0].exit_code if self.problems else 0


Command = Callable[[Caller], Awaitable[Report]]


def run(command: Command, *, timeout: float, interval: int | None = None) -> int:
    """Run `command`, with an `interval` in seconds again and again until Ctrl-C; the exit code.

    A repeated command outlives its errors: it is there to watch a cluster in trouble.
    """
    try:
        return asyncio.run(_run(command, timeout, interval))
    except KeyboardInterrupt:
        return 0 if interval is not None else 130
    except BrokenPipeError:
        terminal.forget_standard_output()
        return 0


def complain(error: object) -> None:
    """One line on standard error."""
    terminal.complain(PROGRAM, error)


async def _run(command: Command, timeout: float, interval: int | None) -> int:  # noqa: ASYNC109 - handed on
    client = RemotingClient(connect_timeout=timeout)
    try:
        caller = Caller(client, timeout)
        while True:
            report = await _report(command, caller)
            sys.stdout.write(report.text)
            sys.stdout.flush()
            for problem in report.problems:
                complain(problem)
            if interval is None:
                return report.exit_code
            await asyncio.sleep(interval)
    finally:
        await client.close()


async def _report(command: Command, caller: Caller) -> Report:
    try:
        return await command(caller)
    except AdminError as error:
        return Report("", (error,))
