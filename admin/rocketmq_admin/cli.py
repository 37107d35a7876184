"""The command line: mqadmin's controller commands under their names, with their flags. One function per command.

Each reads its arguments, says what to ask and how to print it, and leaves the rest to `run`.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import Annotated, TypeVar

import typer

from rocketmq_admin import brokers, controllers, members, options, output
from rocketmq_admin.caller import Caller
from rocketmq_admin.errors import AdminError, ClusterRefusedError, WrongUsageError
from rocketmq_admin.options import DEFAULT_TIMEOUT, OutputFormat
from rocketmq_admin.run import Report, run
from rocketmq_runtime.terminal import to_json
from rocketmq_runtime.version import __version__

app = typer.Typer(
    help="RocketMQ's mqadmin commands for controllers. 'rocketmq-admin COMMAND --help' shows flags and an example.",
    epilog="Exit codes: 0 done, 1 refused by the cluster, 2 wrong usage, 3 not reachable.",
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback
    if wanted:
        typer.echo(f"rocketmq-admin {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command("getSyncStateSet", epilog="Example: rocketmq-admin getSyncStateSet -a 127.0.0.1:9878 -b broker-a -i 3")
def get_sync_state_set(
    *,
    controller: options.Controllers,
    broker: options.FetchBrokerName = None,
    cluster: options.FetchClusterName = None,
    interval: options.Interval = None,
    name_server: options.NameServers = None,
    form: options.Format = OutputFormat.TABLE,
    timeout: options.TimeOut = DEFAULT_TIMEOUT,
) -> int:
    """Masters, epochs and sync state sets of broker groups, as the leading controller has them."""
    addresses = options.parse_addresses(controller, "-a")
    target = options.parse_target(broker, cluster)
    name_servers = [] if target.broker_name else options.parse_name_servers(name_server)

    async def command(caller: Caller) -> Report:
        if target.broker_name:
            names: Sequence[str] = [target.broker_name]
        else:
            names = brokers.broker_names_of(await brokers.get_cluster_info(caller, name_servers), target.cluster_name)
        sets = await controllers.get_sync_state_sets(caller, addresses, names)
        problems = [
            ClusterRefusedError(f"the controller has no broker group {name}") for name in names if name not in sets
        ]
        if not sets:
            return Report("", tuple(problems))
        table, document = output.sync_state_sets_table(sets), output.sync_state_sets_document(sets)
        return _report(form, table, document, problems)

    return run(command, timeout=timeout, interval=interval)


@app.command("getBrokerEpoch", epilog="Example: rocketmq-admin getBrokerEpoch -n 127.0.0.1:9876 -b broker-a -i 3")
def get_broker_epoch(
    *,
    broker: options.FetchBrokerName = None,
    cluster: options.FetchClusterName = None,
    interval: options.Interval = None,
    name_server: options.NameServers = None,
    form: options.Format = OutputFormat.TABLE,
    timeout: options.TimeOut = DEFAULT_TIMEOUT,
) -> int:
    """Epochs in the log of each broker that is registered at a name server, as the brokers themselves have them."""
    target = options.parse_target(broker, cluster)
    name_servers = options.parse_name_servers(name_server)

    async def command(caller: Caller) -> Report:
        info = await brokers.get_cluster_info(caller, name_servers)
        names = [target.broker_name] if target.broker_name else brokers.broker_names_of(info, target.cluster_name)
        addresses = [address for name in names for address in brokers.addresses_of(info, name)]
        if not addresses:
            raise ClusterRefusedError(f"the name server has no broker of {' '.join(names)}")
        found, problems = await _gather(brokers.get_broker_epochs(caller, address) for address in addresses)
        if not found:
            return Report("", tuple(problems))
        return _report(form, output.broker_epochs_table(found), output.broker_epochs_document(found), problems)

    return run(command, timeout=timeout, interval=interval)


@app.command(
    "electMaster",
    epilog="Example: rocketmq-admin electMaster -a 127.0.0.1:9878 -c DefaultCluster -bn broker-a -b 2",
)
def elect_master(
    *,
    controller: options.Controllers,
    broker_id: Annotated[
        int, typer.Option("-b", "--brokerId", metavar="ID", min=1, help="Controller id of the broker to become master.")
    ],
    broker: options.BrokerName,
    cluster: Annotated[str, typer.Option("-c", "--clusterName", metavar="NAME", help="The broker group's cluster.")],
    name_server: options.UnusedNameServers = None,  # noqa: ARG001
    form: options.Format = OutputFormat.TABLE,
    timeout: options.TimeOut = DEFAULT_TIMEOUT,
) -> int:
    """Make a broker master of its group: one that is alive and in sync, unless unclean elections are allowed."""
    addresses = options.parse_addresses(controller, "-a")
    broker_name = options.required(broker, "-bn")
    cluster_name = options.required(cluster, "-c")

    async def command(caller: Caller) -> Report:
        elected = await controllers.elect_master(
            caller, addresses, cluster_name=cluster_name, broker_name=broker_name, broker_id=broker_id
        )
        return _report(form, output.elected_table(elected), output.elected_document(elected))

    return run(command, timeout=timeout)


@app.command(
    "getControllerMetaData",
    epilog="Example: rocketmq-admin getControllerMetaData -a '127.0.0.1:9878;127.0.0.1:9868'",
)
def get_controller_meta_data(
    *,
    controller: options.Controllers,
    name_server: options.UnusedNameServers = None,  # noqa: ARG001
    form: options.Format = OutputFormat.TABLE,
    timeout: options.TimeOut = DEFAULT_TIMEOUT,
) -> int:
    """The controllers' group, leader and members, as the first controller that answers has them."""
    addresses = options.parse_addresses(controller, "-a")

    async def command(caller: Caller) -> Report:
        metadata = await controllers.get_first_metadata(caller, addresses)
        return _report(form, output.metadata_table(metadata), output.metadata_document(metadata))

    return run(command, timeout=timeout)


@app.command(
    "cleanBrokerMetadata",
    epilog="Example: rocketmq-admin cleanBrokerMetadata -a 127.0.0.1:9878 -c DefaultCluster -bn broker-a -b '2;3'",
)
def clean_broker_metadata(
    *,
    controller: options.Controllers,
    broker: options.BrokerName,
    broker_ids: Annotated[
        str | None,
        typer.Option("-b", "--brokerControllerIdsToClean", metavar="ID[;...]", help="Only these brokers of the group."),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("-c", "--clusterName", metavar="NAME", help="The group's cluster; needed without -l.")
    ] = None,
    living: Annotated[
        bool,
        typer.Option(
            "-l",
            "--cleanLivingBroker",
            help="Also brokers that are alive. Java's controller ignores -b then and forgets the whole group.",
        ),
    ] = False,
    name_server: options.UnusedNameServers = None,  # noqa: ARG001
    form: options.Format = OutputFormat.TABLE,
    timeout: options.TimeOut = DEFAULT_TIMEOUT,
) -> int:
    """Make the controllers forget a broker group, or some brokers of it."""
    addresses = options.parse_addresses(controller, "-a")
    name, ids = options.required(broker, "-bn"), options.parse_broker_ids(broker_ids)
    cluster_name = (cluster or "").strip() or None
    if cluster_name is None and not living:
        raise WrongUsageError("-c is needed unless living brokers are to be cleaned (-l)")

    async def command(caller: Caller) -> Report:
        await controllers.clean_broker_metadata(
            caller, addresses, cluster_name=cluster_name, broker_name=name, broker_ids=ids, living=living
        )
        return _report(form, output.cleaned_table(name), output.cleaned_document(cluster_name, name, ids))

    return run(command, timeout=timeout)


@app.command(
    "getControllerConfig",
    epilog="Example: rocketmq-admin getControllerConfig -a '127.0.0.1:9878;127.0.0.1:9868'",
)
def get_controller_config(
    *,
    controller: options.EachController,
    name_server: options.UnusedNameServers = None,  # noqa: ARG001
    form: options.Format = OutputFormat.TABLE,
    timeout: options.TimeOut = DEFAULT_TIMEOUT,
) -> int:
    """The configuration of each controller given."""
    addresses = options.parse_addresses(controller, "-a")

    async def command(caller: Caller) -> Report:
        configs, problems = await _gather(controllers.get_config(caller, address) for address in addresses)
        if not configs:
            return Report("", tuple(problems))
        return _report(form, output.configs_table(configs), output.configs_document(configs), problems)

    return run(command, timeout=timeout)


@app.command(
    "updateControllerConfig",
    epilog="Example: rocketmq-admin updateControllerConfig -a 127.0.0.1:9878 -k electMasterMaxRetryCount -v 4",
)
def update_controller_config(
    *,
    controller: options.EachController,
    key: Annotated[str, typer.Option("-k", "--key", metavar="KEY", help="Which setting.")],
    value: Annotated[str, typer.Option("-v", "--value", metavar="VALUE", help="Its new value.")],
    name_server: options.UnusedNameServers = None,  # noqa: ARG001
    form: options.Format = OutputFormat.TABLE,
    timeout: options.TimeOut = DEFAULT_TIMEOUT,
) -> int:
    """Change a setting at each controller given; each is then asked whether it holds the new value."""
    addresses = options.parse_addresses(controller, "-a")
    key, value = options.required(key, "-k"), value.strip()

    async def command(caller: Caller) -> Report:
        results = [await controllers.update_config(caller, address, key, value) for address in addresses]
        problems = [result.error for result in results if result.error is not None]
        table, document = output.updated_table(key, value, results), output.updated_document(key, value, results)
        return _report(form, table, document, problems)

    return run(command, timeout=timeout)


@app.command(
    "getControllerMembers",
    epilog="Example: rocketmq-admin getControllerMembers -g '127.0.0.1:9880;127.0.0.1:9870'",
)
def get_controller_members(
    *,
    controller: options.GrpcControllers,
    certificate: options.TlsCertificate = None,
    key: options.TlsKey = None,
    authority: options.TlsAuthority = None,
    interval: options.Interval = None,
    form: options.Format = OutputFormat.TABLE,
    timeout: options.TimeOut = DEFAULT_TIMEOUT,
) -> int:
    """The controllers' quorum: who votes, who is a learner, and how far each one's log is, as the leader sees it."""
    quorum = members.Quorum(options.parse_addresses(controller, "-g"), options.tls_of(certificate, key, authority))

    async def command(_caller: Caller) -> Report:
        found = await members.get_members(quorum, timeout)
        return _report(form, output.members_table(found), output.members_document(found))

    return run(command, timeout=timeout, interval=interval)


@app.command(
    "addControllerMember",
    epilog="Example: rocketmq-admin addControllerMember -g 127.0.0.1:9880 -i n3 -m 10.0.0.4:9878",
)
def add_controller_member(
    *,
    controller: options.GrpcControllers,
    member: options.MemberId,
    address: Annotated[
        str,
        typer.Option("-m", "--memberAddress", metavar="HOST:PORT", help="Its address, as in controllerDLegerPeers."),
    ],
    wait: Annotated[
        int, typer.Option("-w", "--wait", metavar="SECONDS", min=0, max=86_400, help="How long to wait until it votes.")
    ] = members.WAIT,
    certificate: options.TlsCertificate = None,
    key: options.TlsKey = None,
    authority: options.TlsAuthority = None,
    form: options.Format = OutputFormat.TABLE,
    timeout: options.TimeOut = DEFAULT_TIMEOUT,
) -> int:
    """Take a controller into the quorum and wait until it has caught up and votes; of a member: change its address."""
    quorum = members.Quorum(options.parse_addresses(controller, "-g"), options.tls_of(certificate, key, authority))
    member_id = options.required(member, "-i")
    (place,) = options.parse_addresses(address, "-m")[:1]

    async def command(_caller: Caller) -> Report:
        found = await members.add_member(quorum, timeout, member_id, place, wait=wait)
        return _report(form, output.members_table(found), output.members_document(found))

    return run(command, timeout=timeout)


@app.command(
    "removeControllerMember",
    epilog="Example: rocketmq-admin removeControllerMember -g 127.0.0.1:9880 -i n2",
)
def remove_controller_member(
    *,
    controller: options.GrpcControllers,
    member: options.MemberId,
    certificate: options.TlsCertificate = None,
    key: options.TlsKey = None,
    authority: options.TlsAuthority = None,
    form: options.Format = OutputFormat.TABLE,
    timeout: options.TimeOut = DEFAULT_TIMEOUT,
) -> int:
    """Take a controller out of the quorum; a leader hands over first."""
    quorum = members.Quorum(options.parse_addresses(controller, "-g"), options.tls_of(certificate, key, authority))
    member_id = options.required(member, "-i")

    async def command(_caller: Caller) -> Report:
        found = await members.remove_member(quorum, timeout, member_id)
        return _report(form, output.members_table(found), output.members_document(found))

    return run(command, timeout=timeout)


def _report(form: OutputFormat, table: str, document: output.Document, problems: Sequence[AdminError] = ()) -> Report:
    text = to_json(document) if form is OutputFormat.JSON else table
    return Report(text, tuple(problems))


T = TypeVar("T")


async def _gather(questions: Iterable[Awaitable[T]]) -> tuple[list[T], list[AdminError]]:
    """The answers in order, and what was wrong with the others."""

    async def settle(question: Awaitable[T]) -> T | AdminError:
        try:
            return await question
        except AdminError as error:
            return error

    settled = await asyncio.gather(*map(settle, questions))
    problems = [outcome for outcome in settled if isinstance(outcome, AdminError)]
    return [outcome for outcome in settled if not isinstance(outcome, AdminError)], problems
