"""The command line: one function per verb. Each reads its arguments; the verb's own module does the work.

Those modules are imported when their verb is called, because `kubernetes` and gRPC take longer to load than everything
else, and `--help` and completion do not need them.
"""

from pathlib import Path
from typing import Annotated

import typer

from rocketmq_kubectl import options
from rocketmq_kubectl.options import Flags, with_flags
from rocketmq_kubectl.output import Form

app = typer.Typer(
    name="kubectl rocketmq",
    help="RocketMQ broker groups in Kubernetes: show masters and replicas in sync, and change them safely.",
    epilog="Exit codes: 0 done, 1 refused or not found, 2 wrong usage, 3 unreachable, 4 timed out.",
    add_completion=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

SHOW = "Show"
OptionalGroup = Annotated[str | None, typer.Argument(metavar="[GROUP]", help="Name of the BrokerGroup; default: all.")]


@app.callback()
def _before(
    *,
    namespace: options.Namespace = None,
    context: options.Context = None,
    kubeconfig: options.Kubeconfig = None,
    request_timeout: options.RequestTimeout = None,
) -> None:
    options.remember(
        Flags(namespace=namespace, context=context, kubeconfig=kubeconfig, request_timeout=request_timeout)
    )


@app.command("get-sync-state-set", rich_help_panel=SHOW, epilog="Example: kubectl rocketmq get-sync-state-set -i 3")
@with_flags()
def get_sync_state_set(
    flags: Flags,
    *,
    group: OptionalGroup = None,
    interval: options.Interval = None,
    all_namespaces: options.AllNamespaces = False,
) -> int:
    """Show masters, epochs and replicas in sync as the leading controller has them (also: getSyncStateSet)."""
    from rocketmq_kubectl.run import run
    from rocketmq_kubectl.verbs.sync_state_set import get_sync_state_set as work

    return run(
        lambda session: work(session, group, all_namespaces=all_namespaces), flags.kube, flags.form, interval=interval
    )


@app.command("status", rich_help_panel=SHOW, epilog="Example: kubectl rocketmq status broker-a")
@with_flags()
def status(
    flags: Flags,
    *,
    group: OptionalGroup = None,
    interval: options.Interval = None,
    all_namespaces: options.AllNamespaces = False,
) -> int:
    """Show all groups and controllers, or one group with replicas, their remarks, conditions and latest events."""
    from rocketmq_kubectl.run import run
    from rocketmq_kubectl.verbs.status import status as work

    wide = flags.form is Form.WIDE
    return run(
        lambda session: work(session, group, all_namespaces=all_namespaces, wide=wide),
        flags.kube,
        flags.form,
        interval=interval,
    )


@app.command("epochs", rich_help_panel=SHOW, epilog="Example: kubectl rocketmq epochs broker-a")
@with_flags()
def epochs(flags: Flags, group: options.Group, *, interval: options.Interval = None) -> int:
    """Show the epochs in the log of each replica, and whether they agree."""
    from rocketmq_kubectl.run import run
    from rocketmq_kubectl.verbs.epochs import epochs as work

    return run(lambda session: work(session, group), flags.kube, flags.form, interval=interval)


@app.command("report", rich_help_panel=SHOW, epilog="Example: kubectl rocketmq report broker-a -o broker-a.zip")
@with_flags(without=frozenset({"output"}))
def report(
    flags: Flags,
    group: options.Group,
    *,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE.zip", help="Default: GROUP-TIME.zip here.")
    ] = None,
    logs: Annotated[bool, typer.Option("--logs/--no-logs", help="Include the pods' logs.")] = True,
    tail: Annotated[int, typer.Option("--tail", min=1, max=1_000_000, help="Newest lines of each container.")] = 20_000,
) -> int:
    """Write a support bundle without secrets."""
    from rocketmq_kubectl.run import run
    from rocketmq_kubectl.verbs.report import report as work

    tail_lines = tail if logs else 0
    return run(lambda session: work(session, group, output, tail_lines=tail_lines), flags.kube, flags.form)


@app.command("version", rich_help_panel=SHOW)
@with_flags()
def version(flags: Flags) -> int:
    """Show the versions of this plugin, the API server and the operator."""
    from rocketmq_kubectl.run import run
    from rocketmq_kubectl.verbs.version import version as work

    return run(work, flags.kube, flags.form)
