"""`controller ...`: the verbs on ControllerClusters. The import registers them on the program; see `cli`."""

from typing import Annotated

import typer

from rocketmq_kubectl.cli import SHOW, app
from rocketmq_kubectl.options import Flags, Interval, with_flags

controller_app = typer.Typer(help="The controllers: leader, transfer of leadership, configuration.")
app.add_typer(controller_app, name="controller", rich_help_panel=SHOW)

Cluster = Annotated[str, typer.Argument(metavar="NAME", help="Name of the ControllerCluster.")]


@controller_app.command("status", epilog="Example: kubectl rocketmq controller status main")
@with_flags()
def status(
    flags: Flags,
    *,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Name of the ControllerCluster; default: all.")
    ] = None,
    interval: Interval = None,
) -> int:
    """Show leader, term, and the quorum as each member sees it."""
    from rocketmq_kubectl.run import run
    from rocketmq_kubectl.verbs.controller import status as work

    return run(lambda session: work(session, name), flags.kube, flags.form, interval=interval)


@controller_app.command("transfer-leader", epilog="Example: kubectl rocketmq controller transfer-leader main n1")
@with_flags()
def transfer_leader(
    flags: Flags,
    name: Cluster,
    target: Annotated[
        str | None, typer.Argument(metavar="[MEMBER|POD]", help="n0, n1, ... or its pod; default: the longest log.")
    ] = None,
    *,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=1, max=60, help="For the whole transfer.")
    ] = 10.0,
) -> int:
    """Transfer leadership of the controllers to another member. Groups are not affected."""
    from rocketmq_kubectl.run import run
    from rocketmq_kubectl.verbs.controller import transfer_leader as work

    return run(lambda session: work(session, name, target, seconds=timeout), flags.kube, flags.form)


@controller_app.command("config", epilog="Example: kubectl rocketmq controller config main -o json")
@with_flags()
def config(flags: Flags, name: Cluster) -> int:
    """Show the configuration of each member (mqadmin's getControllerConfig)."""
    from rocketmq_kubectl.run import run
    from rocketmq_kubectl.verbs.controller_config import config as work

    return run(lambda session: work(session, name), flags.kube, flags.form)
