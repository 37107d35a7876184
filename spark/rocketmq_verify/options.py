"""The options of `rocketmq-verify` over the environment over the configuration file. For `cli`."""

import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import typer
from typer.exceptions import TyperException

from rocketmq_runtime.config.settings import build_settings, from_environment, read_properties_file
from rocketmq_runtime.version import __version__
from rocketmq_settings.verify import CHUNK_SIZE, CHUNK_SIZE_FORM, REREAD_DAYS
from rocketmq_verify.engine.submitted import GATEWAY
from rocketmq_verify.settings import VerifySettings
from rocketmq_verify.sizes import parse_size
from rocketmq_verify.sources.same_store import check_stores
from rocketmq_verify.sources.source import FILES, SIDECAR, SourceOptions, SpecError
from rocketmq_verify.sources.work import Place, parse_place, parse_places

if TYPE_CHECKING:
    from rocketmq_verify.run import Request

PROGRAM: Final = "rocketmq-verify"
_CONFIGURES_SPARK: Final = {GATEWAY, "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR"}
"""Of the environment."""
_EXAMPLES: Final = (
    f"Examples: {PROGRAM} --replica a=/data/a/store --replica b=/data/b/store --replica c=/data/c/store",
    f"{PROGRAM} --sidecar a=broker-a-0:10920 --sidecar b=broker-a-1:10920 --history /var/lib/verify -o json",
    "Exit codes: 0 aligned, 1 mismatch, 2 usage, 3 not verified, 130 interrupted.",
    "Every configuration key may also come from the environment: ROCKETMQ_<KEY>.",
)


class WrongUsageError(ValueError):
    """Options that do not exist or do not go together; the text says which."""


class OutputFormat(StrEnum):
    """Form of the result."""

    TEXT = "text"
    JSON = "json"


class EngineOption(StrEnum):
    """See `run.EngineKind`, whose module imports Arrow."""

    AUTO = "auto"
    LOCAL = "local"
    SPARK = "spark"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """One run, as the command line asks for it."""

    settings: VerifySettings
    unknown_keys: tuple[str, ...] = ()
    config: Path | None = None
    """The configuration file."""
    places: tuple[Place, ...]
    output: OutputFormat = OutputFormat.TEXT
    plan: bool = False
    verbose: bool = False
    quiet: bool = False


app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


def parse(arguments: Sequence[str] | None) -> Options | None:
    """The options of a run; None: nothing is left to do (--help, --version, --print-config).

    Raises:
        SettingsError, SpecError, ValueError: wrong configuration or options; the text says which.
    """
    command = typer.main.get_command(app)
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        options = command.main(given, prog_name=PROGRAM, standalone_mode=False)
    except TyperException as error:
        raise WrongUsageError(f"{error.format_message()} (see {PROGRAM} --help)") from error
    return options if isinstance(options, Options) else None


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer's callback
    if wanted:
        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit


@app.command(epilog="\n\n".join(_EXAMPLES))
def _read(
    *,
    replica: Annotated[
        list[str] | None, typer.Option(metavar="NAME=DIR", help="A replica's storePathRootDir; repeat.")
    ] = None,
    sidecar: Annotated[
        list[str] | None, typer.Option(metavar="NAME=HOST:PORT", help="A replica by its sidecar; repeat.")
    ] = None,
    group: Annotated[str | None, typer.Option(metavar="NAME", help="The brokers' brokerName: selects the history.")] = (
        None
    ),
    chunk_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help=f"Bytes that share a digest, {CHUNK_SIZE_FORM} ({CHUNK_SIZE})."),
    ] = None,
    full: Annotated[bool | None, typer.Option("--full", help="Read everything, also what was compared before.")] = None,
    reread_days: Annotated[
        str | None,
        typer.Option(metavar="DAYS", help=f"Every byte is read again within this time, oldest first ({REREAD_DAYS})."),
    ] = None,
    time_budget: Annotated[
        str | None,
        typer.Option(metavar="SECONDS", help="End after this time; the next run continues. Needs --history."),
    ] = None,
    history: Annotated[
        str | None, typer.Option(metavar="PATH", help="Directory or URI for results and watermarks.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Bytes per second read of each replica, for example 200Mi.")
    ] = None,
    structure: Annotated[
        bool | None, typer.Option("--structure/--no-structure", help="Check the structure of records (yes).")
    ] = None,
    queues: Annotated[bool | None, typer.Option("--queues/--no-queues", help="Check consume queues (yes).")] = None,
    allow_unreachable: Annotated[
        bool | None, typer.Option("--allow-unreachable", help="Two readable replicas are enough.")
    ] = None,
    output: Annotated[OutputFormat, typer.Option("-o", "--output", help="Form of the result.")] = OutputFormat.TEXT,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print how to repair what was found; no step is ever taken.")
    ] = False,
    report: Annotated[str | None, typer.Option(metavar="FILE", help="Write an HTML report.")] = None,
    engine: Annotated[
        EngineOption | None,
        typer.Option(help="local: without Spark; auto: Spark only for large logs, or if it is configured."),
    ] = None,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Where Spark runs, as for spark-submit (local[*]).")
    ] = None,
    tls_cert: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Certificate (PEM) for sidecars with mutual TLS; needs the next two."),
    ] = None,
    tls_key: Annotated[str | None, typer.Option(metavar="FILE", help="Key of --tls-cert.")] = None,
    tls_ca: Annotated[
        str | None, typer.Option(metavar="FILE", help="CA that signs the sidecars' certificates.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("-c", "--config", metavar="FILE", help="Configuration in Java properties form.")
    ] = None,
    print_config: Annotated[
        bool, typer.Option("-p", "--print-config", help="Print every key with its value and exit.")
    ] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No progress on standard error.")] = False,
    verbose: Annotated[
        bool, typer.Option("-v", "--verbose", help="Spark's output on standard error, and errors with their traces.")
    ] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> Options | None:
    """Prove that the replicas of a RocketMQ broker group have equal commit logs, or name what differs."""
    del version
    keys = {
        "brokerName": group,
        "chunkSize": chunk_size,
        "full": full,
        "rereadDays": reread_days,
        "timeBudgetSeconds": time_budget,
        "historyPath": history,
        "rateLimit": rate,
        "structure": structure,
        "queues": queues,
        "allowUnreachable": allow_unreachable,
        "reportFile": report,
        "engine": engine,
        "sparkMaster": master,
        "tlsCertFile": tls_cert,
        "tlsKeyFile": tls_key,
        "tlsCaFile": tls_ca,
    }
    over = {
        key: str(value).lower() if isinstance(value, bool) else value
        for key, value in keys.items()
        if value is not None
    }
    file = {} if config is None else read_properties_file(config)
    loaded = build_settings(VerifySettings, file, from_environment(VerifySettings), over)
    if print_config:
        sys.stdout.write(loaded.as_properties().decode())
        return None
    return Options(
        settings=loaded.settings,
        unknown_keys=loaded.unknown_keys,
        config=config,
        places=_places(replica or [], sidecar or [], loaded.settings.replicas),
        output=output,
        plan=plan,
        verbose=verbose,
        quiet=quiet,
    )


def _places(replicas: Sequence[str], sidecars: Sequence[str], configured: str) -> tuple[Place, ...]:
    places = [parse_place(text) for text in replicas] + [parse_place(text, SIDECAR) for text in sidecars]
    places = [_absolute(place) for place in places or parse_places(configured)]
    names = [place.name for place in places]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SpecError(f"replica {twice[0]} is given twice")
    specs: dict[str, str] = {}
    for place in places:
        if (other := specs.setdefault(place.spec.rstrip("/"), place.name)) != place.name:
            raise SpecError(f"{other} and {place.name} are the same place: a log always agrees with itself")
    check_stores(places)
    if len(places) < 2:
        raise SpecError(
            "a comparison needs two replicas: give --replica NAME=DIRECTORY (a storePathRootDir) or --sidecar "
            "NAME=HOST:PORT at least twice, or the key replicas"
        )
    return tuple(places)


def _absolute(place: Place) -> Place:
    """Executors of Spark run in other folders."""
    if not place.has_files:
        return place
    directory = place.spec.removeprefix(f"{FILES}:")
    try:
        path = Path(directory).expanduser()
    except RuntimeError as error:
        raise SpecError(f"replica {place.name}: {directory}: there is no such user, or no home directory") from error
    return Place(place.name, f"{FILES}:{path.absolute()}")


def request_of(options: Options) -> "Request":
    """The job's request."""
    from rocketmq_verify.engine.session import SessionOptions  # noqa: PLC0415
    from rocketmq_verify.history.rows import Group  # noqa: PLC0415 - imports Arrow
    from rocketmq_verify.run import DAY_MS, EngineKind, Request  # noqa: PLC0415

    settings = options.settings
    engine = EngineKind(settings.engine)
    if engine is EngineKind.AUTO and (
        settings.spark_master or settings.spark_conf or _CONFIGURES_SPARK & os.environ.keys()
    ):
        engine = EngineKind.SPARK
    return Request(
        group=Group(settings.broker_cluster_name, settings.broker_name),
        places=options.places,
        options=SourceOptions(
            tls=settings.tls, bytes_per_second=parse_size(settings.rate_limit), patience=settings.patience_seconds
        ),
        chunk_size=parse_size(settings.chunk_size),
        reread_ms=settings.reread_days * DAY_MS,
        full=settings.full,
        time_budget=settings.time_budget_seconds,
        structure=settings.structure,
        queues=settings.queues,
        allow_unreachable=settings.allow_unreachable,
        broker_group=settings.broker_group,
        history_path=settings.history_path,
        engine=engine,
        spark=SessionOptions(master=settings.spark_master or None, conf=settings.conf(), verbose=options.verbose),
    )
