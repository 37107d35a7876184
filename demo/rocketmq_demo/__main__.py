"""`rocketmq-demo`: a whole group on loopback, broken on purpose, with a live view and a summary.

Exit codes: 0 every promise held, 1 one did not, 2 wrong options or no Java for `--engine apache`.
"""

import asyncio
import logging
import shutil
import signal
import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated

import msgspec
import structlog
import typer
from rich.console import Console

from rocketmq_demo.apache.jars import ApacheEngineUnavailable
from rocketmq_demo.controllers import ControllerCluster
from rocketmq_demo.engines.engine import BROKER_GROUP, Engine
from rocketmq_demo.engines.native import NativeEngine
from rocketmq_demo.engines.official import OfficialEngine
from rocketmq_demo.ports import PortPool
from rocketmq_demo.story import summary, view
from rocketmq_demo.story.faults import DEFAULT_FAULTS, KNOWN, Stage, fault_named
from rocketmq_demo.story.observer import Observer
from rocketmq_demo.story.outcome import Outcome
from rocketmq_demo.story.story import Story
from rocketmq_demo.story.timeline import Kind, Timeline
from rocketmq_runtime.command_line import EXIT_USAGE
from rocketmq_runtime.version import __version__

EXIT_BROKEN = 1
WIDTH = 120
"""Columns of the summary where there is no terminal."""


class EngineName(StrEnum):
    """The kind of brokers."""

    NATIVE = "native"
    APACHE = "apache"


ENGINES: dict[EngineName, type[NativeEngine | OfficialEngine]] = {
    EngineName.NATIVE: NativeEngine,
    EngineName.APACHE: OfficialEngine,
}


class Output(StrEnum):
    """Form of the result on standard output."""

    TABLE = "table"
    JSON = "json"


app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


def _version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback
    if wanted:
        typer.echo(f"rocketmq-demo {__version__}")
        raise typer.Exit


def _fault_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    unknown = [name for name in names if fault_named(name) is None]
    if unknown:
        raise typer.BadParameter(f"unknown: {', '.join(unknown)}; known: {', '.join(KNOWN)}")
    return names


@app.command()
def demo(
    *,
    engine: Annotated[EngineName, typer.Option(help="native: our own brokers. apache: official brokers.")] = (
        EngineName.NATIVE
    ),
    replicas: Annotated[int, typer.Option(min=2, max=9, help="Brokers in the group.")] = 3,
    controllers: Annotated[int, typer.Option(min=3, max=7, help="Controllers, an odd number.")] = 3,
    faults: Annotated[str, typer.Option(help=f"Faults in this order: {', '.join(KNOWN)}.")] = ",".join(DEFAULT_FAULTS),
    seconds: Annotated[
        float, typer.Option(min=0, max=3600, help="Undisturbed seconds around each fault and each healing.")
    ] = 1.0,
    folder: Annotated[Path | None, typer.Option(help="For logs and stores; default: a temporary folder.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the group running afterwards, until Ctrl-C.")] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="Form of the result.")] = Output.TABLE,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Start a RocketMQ broker group on loopback, break it again and again, and show the cost of each fault."""
    del version
    names = _fault_names(faults)
    if controllers % 2 == 0:
        raise typer.BadParameter("an even number of controllers adds no safety", param_hint="--controllers")
    place = folder.absolute() if folder is not None else Path(tempfile.mkdtemp(prefix="rocketmq-demo-"))
    console = Console(stderr=output is Output.JSON)
    if not console.is_terminal:
        console.width = WIDTH
    try:
        outcome = _run(
            console=console,
            engine_name=engine,
            folder=place,
            replicas=replicas,
            members=controllers,
            faults=names,
            quiet=seconds,
            keep=keep,
        )
    except ApacheEngineUnavailable as error:
        Console(stderr=True).print(f"--engine apache cannot run here: {error}", style="bold red", markup=False)
        _clear(folder, place)
        raise typer.Exit(EXIT_USAGE) from error
    except (KeyboardInterrupt, SystemExit):
        _clear(folder, place)
        raise
    if output is Output.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(outcome), indent=2).decode())
    else:
        summary.show(console, outcome)
    if folder is not None or outcome.problems:
        console.print(f"Logs and stores are in {place}", soft_wrap=True, markup=False)
    else:
        _clear(folder, place)
    raise typer.Exit(EXIT_BROKEN if outcome.problems else 0)


def _clear(wanted: Path | None, place: Path) -> None:
    if wanted is None:
        shutil.rmtree(place, ignore_errors=True)


def _run(
    *,
    console: Console,
    engine_name: EngineName,
    folder: Path,
    replicas: int,
    members: int,
    faults: tuple[str, ...],
    quiet: float,
    keep: bool,
) -> Outcome:
    with PortPool() as ports, ControllerCluster(folder / "controllers", ports=ports, members=members) as controllers:
        engine: Engine = ENGINES[engine_name](folder, ports=ports, controllers=controllers.addresses, replicas=replicas)
        timeline = Timeline()
        stage = Stage(engine, controllers, Observer(controllers, BROKER_GROUP, timeline), timeline)
        try:
            console.print(engine.remark, style="dim", soft_wrap=not console.is_terminal)
            with view.shown(console, stage):
                outcome = asyncio.run(_run_story(stage, faults=faults, quiet=quiet, folder=folder))
            if keep:
                _keep(console, stage)
            return outcome
        finally:
            engine.close()


async def _run_story(stage: Stage, *, faults: tuple[str, ...], quiet: float, folder: Path) -> Outcome:
    try:
        return await Story(stage, faults=faults, quiet=quiet).run(str(folder))
    except asyncio.CancelledError:
        # Ctrl-C: threads that wait for these processes must not delay the exit.
        stage.engine.close()
        stage.controllers.close()
        raise


def _keep(console: Console, stage: Stage) -> None:
    timeline = stage.timeline
    timeline.add(Kind.STEP, "kept running")
    console.print(f"Controllers: {stage.controllers.controller_addr}", soft_wrap=True)
    for broker in stage.engine.brokers:
        console.print(f"{broker.label}: {broker.address}, pid {broker.process.pid}", soft_wrap=True)
    console.print("The group keeps running; Ctrl-C ends it.")
    try:
        signal.pause()
    except KeyboardInterrupt:
        console.print()


def _end(number: int, frame: FrameType | None) -> None:
    del frame
    sys.exit(128 + number)  # runs the finally blocks, which end the processes


def main() -> None:
    """The command's entry."""
    signal.signal(signal.SIGTERM, _end)
    # Our clients' retries are not part of the story, and standard output may be JSON.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    app()


if __name__ == "__main__":
    main()
