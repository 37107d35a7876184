"""Runs one verb once or every few seconds: result to standard output, each problem as one line to standard error."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from rocketmq_kubectl import output
from rocketmq_kubectl.cluster.kube import connect
from rocketmq_kubectl.cluster.kube_options import KubeOptions
from rocketmq_kubectl.cluster.session import Session
from rocketmq_kubectl.errors import PluginError
from rocketmq_kubectl.output import Document, Form
from rocketmq_runtime import terminal

PROGRAM = "kubectl-rocketmq"


class Report(msgspec.Struct, frozen=True):
    """The result of a verb; with problems it may be incomplete."""

    table: str
    document: Document
    problems: tuple[PluginError, ...] = ()


Verb = Callable[[Session], Awaitable[Report]]


def run(verb: Verb, options: KubeOptions, form: Form, *, interval: int | None = None) -> int:
    """The exit code: the first problem's, or 0; with an `interval` in seconds `verb` is repeated until Ctrl-C.

    A repeated verb continues after errors, to watch a cluster in trouble.

    Raises:
        PluginError: the verb failed and is not repeated.
    """
    return terminal.interrupted(lambda: asyncio.run(_run(verb, options, form, interval)), repeats=interval is not None)


async def _run(verb: Verb, options: KubeOptions, form: Form, interval: int | None) -> int:
    kube = connect(options)
    while True:
        session = Session(kube)
        try:
            report = await verb(session)
            text = output.render(form, report.table, report.document)
            code = terminal.show(PROGRAM, text, report.problems)
        except PluginError as error:
            if interval is None:
                raise
            terminal.complain(PROGRAM, error)
            code = error.exit_code
        finally:
            session.close()
        if interval is None:
            return code
        await asyncio.sleep(interval)
