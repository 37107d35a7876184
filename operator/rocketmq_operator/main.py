"""`rocketmq-operator`: the command line, the probes, leader election, and the order of start and end."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import structlog

from rocketmq_operator.app import Operator
from rocketmq_operator.kubernetes.kube import Kube, KubeError, UnavailableError, load_configuration
from rocketmq_operator.kubernetes.lease import Leadership, LeaseLostError, LeaseSettings
from rocketmq_operator.release import ReleaseError, release_finalizers
from rocketmq_operator.settings import OperatorSettings, load
from rocketmq_resources import names
from rocketmq_runtime import background
from rocketmq_runtime.command_line import EXIT_FATAL, EXIT_PORT, Arguments, on_end_signals
from rocketmq_runtime.loop_watchdog import LoopWatchdog
from rocketmq_runtime.probes import ProbeServer
from rocketmq_runtime.start import start
from rocketmq_runtime.version import __version__

PROGRAM: Final = "rocketmq-operator"
EXIT_LEASE: Final = 4
"""The Lease was lost: Kubernetes restarts the process, which then waits for the Lease again."""

log = structlog.get_logger(__name__)


class Command(StrEnum):
    """What the process does."""

    RUN = "run"
    RELEASE_FINALIZERS = "release-finalizers"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    parser = Arguments(
        PROGRAM,
        "Turns BrokerGroup, ControllerCluster and NameServer resources into running processes.",
        epilog="Settings come from the environment: OPERATOR_<NAME>, ROCKETMQ_HA_IMAGE_<NAME>. docs/operator.md lists "
        "all of them.",
    )
    parser.add_argument(
        "command",
        nargs="?",
        choices=[str(command) for command in Command],
        default=str(Command.RUN),
        help="reconcile until stopped (the default), or stop the operator and remove its finalizers from every "
        "resource, before an uninstall",
    )
    options = parser.parse_args(arguments)
    return start(
        PROGRAM,
        load=load,
        source="the environment",
        print_config=options.print_config,
        run=lambda loaded: _ended(Command(options.command), loaded.settings),
    )


def _ended(command: Command, settings: OperatorSettings) -> int:
    try:
        return asyncio.run(_release(settings) if command is Command.RELEASE_FINALIZERS else _run(settings))
    except UnavailableError as error:
        log.error("cannot start", error=str(error))
        return EXIT_FATAL


async def _release(settings: OperatorSettings) -> int:
    kube = Kube(await load_configuration())
    try:
        await release_finalizers(kube, settings)
    except (KubeError, ReleaseError) as error:
        log.error("finalizers not released", error=str(error))
        return EXIT_FATAL
    finally:
        await kube.close()
    return 0


async def _run(settings: OperatorSettings) -> int:
    ending = asyncio.Event()

    def handle_signals() -> None:
        on_end_signals(ending.set)

    handle_signals()
    configuration = await load_configuration()
    kube = Kube(configuration)
    leadership = Leadership(
        kube,
        LeaseSettings(
            namespace=settings.namespace, name=names.LEASE, holder=settings.holder, seconds=settings.lease_seconds
        ),
        clock=time.monotonic,
        wall=time.time,
    )
    operator = Operator(settings, kube, configuration, leading=lambda: leadership.leading, signals=handle_signals)
    kube.count = operator.metrics.called
    pulse = LoopWatchdog()
    try:
        probes = [
            ProbeServer(
                host=settings.health_host,
                port=port,
                registry=operator.metrics.registry,
                healthy=pulse.stuck,
                # An operator that waits for the Lease is ready too: it can take over at once.
                ready=lambda: None if not leadership.leading or operator.watching else "not watching yet",
            )
            for port in (settings.health_port, settings.metrics_port)
        ]
    except OSError as error:
        log.error("port in use", error=str(error))
        await kube.close()
        return EXIT_PORT
    log.info("started", version=__version__, namespaces=settings.watched or "all", holder=settings.holder)
    pulse.start()
    try:
        return await _lead(leadership, operator, ending)
    finally:
        pulse.stop()
        for probe in probes:
            await asyncio.to_thread(probe.stop)
        await kube.close()


async def _lead(leadership: Leadership, operator: Operator, ending: asyncio.Event) -> int:
    """Wait for the Lease, run the operator while it holds the Lease, release it at the end."""
    ended = background.awaited(ending.wait(), "ending")
    acquiring = background.awaited(leadership.acquire(), "acquire lease")
    await asyncio.wait({ended, acquiring}, return_when=asyncio.FIRST_COMPLETED)
    if not leadership.leading:
        await _cancel(acquiring)
        return 0
    holding = background.awaited(leadership.renew(), "renew lease")
    acting = background.awaited(operator.run(), "operator")
    await asyncio.wait({ended, holding, acting}, return_when=asyncio.FIRST_COMPLETED)
    code = 0
    if holding.done():
        error = holding.exception()
        log.error("lost the Lease", error=str(error))
        assert isinstance(error, LeaseLostError), "renew ends only with this error"
        code = EXIT_LEASE
    elif acting.done() and not ending.is_set():
        failure = acting.exception()
        if failure is not None:
            log.error("watching ended", error=str(failure), exc_info=failure)
            code = EXIT_FATAL
    log.info("ending", exit_code=code)
    await _cancel(acting)
    await _cancel(holding)
    await _cancel(ended)
    if code != EXIT_LEASE:
        await leadership.release()
    return code


async def _cancel(task: "asyncio.Task[object]") -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError, LeaseLostError, Exception):
        await task
