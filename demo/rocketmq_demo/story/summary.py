"""The summary at the end of a run."""

from rich import box
from rich.console import Console
from rich.table import Table

from rocketmq_demo.story.outcome import FaultReport, Outcome


def show(console: Console, outcome: Outcome) -> None:
    """Print the result of the run."""
    console.print()
    console.print(_faults(outcome))
    load = outcome.load
    parts = [f"{load.acknowledged} acknowledged", f"{load.failed} attempts failed"]
    if load.read_back is not None:
        parts += [f"{load.read_back} read back", f"{load.lost} lost", f"{load.duplicated} duplicated"]
    console.print(f"Sends: {', '.join(parts)}; longest gap {outcome.longest_gap:.3f} s.")
    if outcome.reads is not None:
        console.print(f"Consumer: {outcome.reads.messages} read, {outcome.reads.rolled_back} offsets rolled back.")
    ids = ", ".join(f"{label} = {broker_id}" for label, broker_id in outcome.broker_ids.items())
    console.print(f"Broker ids: {ids or 'none'}.")
    console.print(outcome.remark, style="dim")
    for problem in outcome.problems:
        console.print(f"BROKEN: {problem}", style="bold red")
    if not outcome.problems:
        console.print(f"Everything held, in {outcome.seconds:.0f} s.", style="bold green")


def _faults(outcome: Outcome) -> Table:
    title = f"{outcome.replicas} brokers ({outcome.engine}), {outcome.controllers} controllers"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("fault", no_wrap=True)
    table.add_column("hit", no_wrap=True)
    for name in ("longest gap", "failed", "reading gap", "back after", "epoch", "master", "ids"):
        table.add_column(name, justify="right", no_wrap=True)
    for fault in outcome.faults:
        table.add_row(*_row(fault), style="" if fault.ids_kept else "red")
    return table


def _row(fault: FaultReport) -> tuple[str, ...]:
    return (
        fault.fault,
        fault.target,
        f"{fault.longest_gap:.3f} s",
        str(fault.failed),
        "-" if fault.longest_reading_gap is None else f"{fault.longest_reading_gap:.3f} s",
        f"{fault.resumed_after:.2f} s",
        _change(fault.master_epoch_before, fault.master_epoch_after),
        _change(fault.master_before, fault.master_after),
        "kept" if fault.ids_kept else "LOST",
    )


def _change(before: int | None, after: int | None) -> str:
    return str(after) if before == after else f"{before} -> {after}"
