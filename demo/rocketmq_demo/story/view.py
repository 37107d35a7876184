"""Shows a run: a live screen on a terminal, plain lines elsewhere."""

import bisect
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from rocketmq_demo.story.faults import Stage
from rocketmq_demo.story.observer import ReplicaView
from rocketmq_demo.story.timeline import Entry, Kind

STYLES = {Kind.STEP: "", Kind.FAULT: "bold yellow", Kind.CHANGE: "cyan", Kind.TROUBLE: "bold red"}
_LINES = 14
_RATE_WINDOW = 1.0


@contextmanager
def shown(console: Console, stage: Stage) -> Iterator[None]:
    """Show `stage` while the block runs."""
    if console.is_terminal:
        screen = _Screen(stage)
        with Live(get_renderable=screen.render, console=console, refresh_per_second=8, transient=True):
            yield
        for entry in stage.timeline.entries:
            console.print(_line(entry))
        return
    stage.timeline.on_entry = lambda entry: console.print(_line(entry), soft_wrap=True)
    try:
        yield
    finally:
        stage.timeline.on_entry = None


class _Screen:
    """Drawn by rich's own thread: reads only."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def render(self) -> RenderableType:
        stage = self._stage
        times = [sent.at for sent in stage.engine.load.acknowledgements()]
        recent = len(times) - bisect.bisect(times, time.monotonic() - _RATE_WINDOW)
        head = Text(f"{stage.timeline.seconds:6.1f} s   engine {stage.engine.name}   ", style="bold")
        head.append(f"{len(times)} sends acknowledged, {recent} in the last second", style="green" if recent else "red")
        lines = [_line(entry) for entry in stage.timeline.entries[-_LINES:]]
        return Group(
            head,
            Text(stage.engine.remark, style="dim"),
            self._replicas(),
            self._controllers(),
            Panel(Group(*lines), title="timeline", title_align="left"),
        )

    def _replicas(self) -> Table:
        group = self._stage.observer.group
        epoch = "" if group is None else f", masterEpoch {group.master_epoch}"
        table = Table(
            "broker", "id", "address", "role", "in sync", "alive", title=f"replicas{epoch}", title_justify="left"
        )
        for broker in self._stage.engine.brokers:
            view = None if group is None else group.by_address(broker.address)
            if view is None:
                table.add_row(broker.label, "-", broker.address or "-", "-", "-", "-", style="dim")
            else:
                table.add_row(*_row(broker.label, view), style="bold green" if view.master else "")
        return table

    def _controllers(self) -> Table:
        table = Table("controller", "address", "role", "term", title="controllers", title_justify="left")
        for view in self._stage.observer.controllers:
            style = {"leader": "bold green", "down": "red", "silent": "red"}.get(view.role, "")
            term = "-" if view.term is None else str(view.term)
            table.add_row(view.member, view.address, view.role, term, style=style)
        return table


def _row(label: str, view: ReplicaView) -> tuple[str, ...]:
    role = "master" if view.master else "slave"
    return label, str(view.broker_id), view.address, role, _yes(view.in_sync), _yes(view.alive)


def _yes(value: bool) -> str:  # noqa: FBT001 - the value is the subject
    return "yes" if value else "no"


def _line(entry: Entry) -> Text:
    return Text(f"{entry.seconds:7.2f} s  {entry.text}", style=STYLES[entry.kind])
