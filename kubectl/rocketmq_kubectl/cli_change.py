"""The verbs that change a group. The import registers them on the program; see `cli`."""

from typing import Annotated

import typer

from rocketmq_kubectl import options
from rocketmq_kubectl.cli import app
from rocketmq_kubectl.options import Flags, with_flags

CHANGE = "Change"
DANGER = "Last resorts"

Target = Annotated[
    str | None, typer.Argument(metavar="[BROKER_ID|POD]", help="The new master; default: the best in sync.")
]


@app.command("switchover", rich_help_panel=CHANGE, epilog="Example: kubectl rocketmq switchover broker-a broker-a-1")
@with_flags()
def switchover(
    flags: Flags,
    group: options.Group,
    target: Target = None,
    *,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.1, max=60, help="Longest time without writes.")
    ] = 5.0,
) -> int:
    """Make another replica master. No message is lost; writes stop for a moment."""
    from rocketmq_kubectl.run import run
    from rocketmq_kubectl.verbs.switchover import switchover as work

    return run(lambda session: work(session, group, target, seconds=timeout), flags.kube, flags.form)


@app.command("fence", rich_help_panel=CHANGE, epilog="Example: kubectl rocketmq fence broker-a --off")
@with_flags()
def fence(
    flags: Flags,
    group: options.Group,
    *,
    off: Annotated[bool, typer.Option("--off", help="Accept writes again.")] = False,
    timeout: options.Wait = 30.0,
) -> int:
    """Refuse writes on every replica until --off, also after restarts. Reads and replication continue."""
    from rocketmq_kubectl.verbs import switches

    return _switch(flags, group, switches.UNFENCE if off else switches.FENCE, timeout)


@app.command("pause", rich_help_panel=CHANGE, epilog="Example: kubectl rocketmq pause broker-a")
@with_flags()
def pause(flags: Flags, group: options.Group, *, timeout: options.Wait = 30.0) -> int:
    """Stop the operator from changing the group. Failover still works."""
    from rocketmq_kubectl.verbs import switches

    return _switch(flags, group, switches.PAUSE, timeout)


@app.command("resume", rich_help_panel=CHANGE, epilog="Example: kubectl rocketmq resume broker-a")
@with_flags()
def resume(flags: Flags, group: options.Group, *, timeout: options.Wait = 30.0) -> int:
    """Let the operator manage a paused group again."""
    from rocketmq_kubectl.verbs import switches

    return _switch(flags, group, switches.RESUME, timeout)


@app.command("hibernate", rich_help_panel=CHANGE, epilog="Example: kubectl rocketmq hibernate broker-a")
@with_flags()
def hibernate(flags: Flags, group: options.Group, *, timeout: options.Wait = 120.0) -> int:
    """Stop all pods of the group; volumes and broker ids are kept."""
    from rocketmq_kubectl.verbs import switches

    return _switch(flags, group, switches.HIBERNATE, timeout)


@app.command("wake", rich_help_panel=CHANGE, epilog="Example: kubectl rocketmq wake broker-a")
@with_flags()
def wake(flags: Flags, group: options.Group, *, timeout: options.Wait = 120.0) -> int:
    """Start a hibernated group again."""
    from rocketmq_kubectl.verbs import switches

    return _switch(flags, group, switches.WAKE, timeout)


@app.command("restart", rich_help_panel=CHANGE, epilog="Example: kubectl rocketmq restart broker-a --timeout 600")
@with_flags()
def restart(flags: Flags, group: options.Group, *, timeout: options.Wait = 0.0) -> int:
    """Restart every pod: slaves one by one, then a switchover, the old master last."""
    from rocketmq_kubectl.run import run
    from rocketmq_kubectl.verbs.restart import restart as work

    return run(lambda session: work(session, group, seconds=timeout), flags.kube, flags.form)


@app.command("verify", rich_help_panel=CHANGE, epilog="Example: kubectl rocketmq verify broker-a --now")
@with_flags()
def verify(
    flags: Flags,
    group: options.Group,
    *,
    last: Annotated[bool, typer.Option("--last", help="Show the last result; the default.")] = False,
    now: Annotated[bool, typer.Option("--now", help="Compare now, with a Job from spec.verification.")] = False,
    full: Annotated[bool, typer.Option("--full", help="With --now: compare everything again.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow/--no-follow", help="With --now: show progress, then the result.")
    ] = True,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", metavar="SECONDS", min=1, help="With --now: how long to follow; default: to the end."
        ),
    ] = None,
) -> int:
    """Compare the replicas' logs. Exit codes: 0 aligned, 1 different, 3 unknown."""
    from rocketmq_kubectl.errors import WrongUsageError
    from rocketmq_kubectl.run import run
    from rocketmq_kubectl.verbs.verify import last as show
    from rocketmq_kubectl.verbs.verify import now as work

    if now and last:
        raise WrongUsageError("--now and --last exclude each other")
    if full and not now:
        raise WrongUsageError("--full needs --now")
    if not now:
        return run(lambda session: show(session, group), flags.kube, flags.form)
    return run(lambda session: work(session, group, full=full, follow=follow, seconds=timeout), flags.kube, flags.form)


@app.command("rebuild", rich_help_panel=DANGER, epilog="Example: kubectl rocketmq rebuild broker-a broker-a-2")
@with_flags()
def rebuild(
    flags: Flags,
    group: options.Group,
    pod: Annotated[str, typer.Argument(metavar="POD", help="The pod whose data is deleted and copied again.")],
    *,
    yes: Annotated[
        bool, typer.Option("--yes-i-delete-this-replica", "--yes", help="For scripts: do not ask for the pod's name.")
    ] = False,
    timeout: options.Wait = 0.0,
) -> int:
    """Delete one replica's data and copy it again from the others. Asks for the pod's name."""
    from rocketmq_kubectl.run import run
    from rocketmq_kubectl.verbs.rebuild import rebuild as work

    return run(lambda session: work(session, group, pod, confirmed=yes, seconds=timeout), flags.kube, flags.form)


@app.command(
    "elect-master", rich_help_panel=DANGER, epilog="Example: kubectl rocketmq elect-master broker-a 2 --force-unclean"
)
@with_flags()
def elect_master(
    flags: Flags,
    group: options.Group,
    target: Annotated[
        str | None, typer.Argument(metavar="[BROKER_ID|POD]", help="Default: the longest log of the newest epoch.")
    ] = None,
    *,
    force_unclean: Annotated[
        bool, typer.Option("--force-unclean", help="Elect a replica that lacks acknowledged messages.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes-i-lose-messages", help="For scripts: do not ask for the group's name.")
    ] = False,
) -> int:
    """When all replicas in the SyncStateSet are lost: continue with another replica. LOSES MESSAGES."""
    from rocketmq_kubectl.run import run
    from rocketmq_kubectl.verbs.elect_master import elect_master as work

    return run(
        lambda session: work(session, group, target, force_unclean=force_unclean, confirmed=yes),
        flags.kube,
        flags.form,
    )


def _switch(flags: Flags, group: str, switch: "object", timeout: float) -> int:
    from rocketmq_kubectl.run import run
    from rocketmq_kubectl.verbs.switches import Switch, set_switch

    assert isinstance(switch, Switch)
    return run(lambda session: set_switch(session, group, switch, seconds=timeout), flags.kube, flags.form)
