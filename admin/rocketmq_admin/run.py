"""Runs one command once or every few seconds: result to standard output, each problem as one line to standard error."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rocketmq_admin.caller import Caller
from rocketmq_admin.errors import AdminError
from rocketmq_runtime import terminal
from rocketmq_runtime.remoting.client import RemotingClient

PROGRAM = "rocketmq-admin"


@dataclass(frozen=True)
class Report:
    """A command's result; with problems, `text` is the part that was available."""

    text: str
    problems: tuple[AdminError, ...] = ()


Command = Callable[[Caller], Awaitable[Report]]


def run(command: Command, *, timeout: float, interval: int | None = None) -> int:
    """Run `command`, with an `interval` in seconds again and again until Ctrl-C; the exit code.

    A repeated command continues after errors: it watches a cluster in trouble.
    """
    return terminal.interrupted(lambda: asyncio.run(_run(command, timeout, interval)), repeats=interval is not None)


async def _run(command: Command, timeout: float, interval: int | None) -> int:  # noqa: ASYNC109 - handed on
    client = RemotingClient(connect_timeout=timeout)
    try:
        caller = Caller(client, timeout)
        while True:
            report = await _report(command, caller)
            code = terminal.show(PROGRAM, report.text, report.problems)
            if interval is None:
                return code
            await asyncio.sleep(interval)
    finally:
        await client.close()


async def _report(command: Command, caller: Caller) -> Report:
    try:
        return await command(caller)
    except AdminError as error:
        return Report("", (error,))
