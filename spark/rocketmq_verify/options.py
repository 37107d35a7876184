"""The options of `rocketmq-verify` over the environment over the configuration file. For `cli`."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import msgspec

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
    "Exit codes: 0 aligned, 1 mismatch, 2 usage, 3 not verified, 4 mismatch and the time was up, 130 interrupted.",
    "Every configuration key may also come from the environment: ROCKETMQ_<KEY>.",
)
_YES: Final[dict[str, Any]] = {"action": "store_const", "const": True}
_YES_OR_NO: Final[dict[str, Any]] = {"action": argparse.BooleanOptionalAction}
"""Of options whose key decides when they are not there."""

E = TypeVar("E", bound=StrEnum)


class WrongUsageError(ValueError):
    """Options that do not exist or do not go together; the text says which."""


class OutputFormat(StrEnum):
    """Form of the result."""

    TEXT = "text"
    JSON = "json"


class EngineOption(StrEnum):
    """See `run.EngineKind`, whose module imports the whole domain: --help need not wait for it."""

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


class _Parser(argparse.ArgumentParser):
    """Wrong arguments are one line for the caller to print."""

    def error(self, message: str) -> NoReturn:
        raise WrongUsageError(f"{message} (see {PROGRAM} --help)")


def parse(arguments: Sequence[str] | None) -> Options | None:
    """The options of a run; None: nothing is left to do (--help, --version, --print-config).

    Raises:
        SettingsError, SpecError, ValueError: wrong configuration or options; the text says which.
    """
    parser = _parser()
    try:
        given, unknown = parser.parse_known_args(arguments)
    except SystemExit:  # --help and --version have printed what they print
        return None
    if unknown:
        what = "No such option" if unknown[0].startswith("-") else "Unexpected argument"
        parser.error(f"{what}: {unknown[0]}")
    return _read(given)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog=PROGRAM,
        description="Prove that the replicas of a RocketMQ broker group have equal commit logs, or name what differs.",
        epilog="\n\n".join(_EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--replica", action="append", default=[], metavar="NAME=DIR", help="A replica's storePathRootDir; repeat.")
    add("--sidecar", action="append", default=[], metavar="NAME=HOST:PORT", help="A replica by its sidecar; repeat.")
    add("--group", dest="brokerName", metavar="NAME", help="The brokers' brokerName: selects the history.")
    size = f"Bytes that share a digest, {CHUNK_SIZE_FORM} ({CHUNK_SIZE})."
    add("--chunk-size", dest="chunkSize", metavar="SIZE", help=size)
    add("--full", **_YES, help="Read everything, also what was compared before.")
    again = f"Every byte is read again within this time, oldest first ({REREAD_DAYS})."
    add("--reread-days", dest="rereadDays", metavar="DAYS", help=again)
    budget = "End after this time; the next run continues. Needs --history."
    add("--time-budget", dest="timeBudgetSeconds", metavar="SECONDS", help=budget)
    add("--history", dest="historyPath", metavar="PATH", help="Directory or URI for results and watermarks.")
    ledger = "Digests of the past instead of the history's; one replica is enough."
    add("--ledger", dest="ledgerFile", metavar="FILE", help=ledger)
    rate = "Bytes per second read of each replica, for example 200Mi."
    add("--rate", dest="rateLimit", metavar="SIZE", help=rate)
    add("--structure", **_YES_OR_NO, help="Check the structure of records (yes).")
    add("--queues", **_YES_OR_NO, help="Check consume queues (yes).")
    add("--allow-unreachable", dest="allowUnreachable", **_YES, help="Two readable replicas are enough.")
    form = _choice(OutputFormat)
    add("-o", "--output", type=form, default=OutputFormat.TEXT, metavar=_all(OutputFormat), help="Form of the result.")
    add("--plan", action="store_true", help="Print how to repair what was found; no step is ever taken.")
    add("--report", dest="reportFile", metavar="FILE", help="Write an HTML report.")
    engine = "local: without Spark; auto: Spark only for large logs, or if it is configured."
    add("--engine", type=_choice(EngineOption), metavar=_all(EngineOption), help=engine)
    add("--master", dest="sparkMaster", metavar="URL", help="Where Spark runs, as for spark-submit (local[*]).")
    certificate = "Certificate (PEM) for sidecars with mutual TLS; needs the next two."
    add("--tls-cert", dest="tlsCertFile", metavar="FILE", help=certificate)
    add("--tls-key", dest="tlsKeyFile", metavar="FILE", help="Key of --tls-cert.")
    add("--tls-ca", dest="tlsCaFile", metavar="FILE", help="CA that signs the sidecars' certificates.")
    add("-c", "--config", type=Path, metavar="FILE", help="Configuration in Java properties form.")
    add("-p", "--print-config", action="store_true", help="Print every key with its value and exit.")
    add("-q", "--quiet", action="store_true", help="No progress on standard error.")
    add("-v", "--verbose", action="store_true", help="Spark's output on standard error, and errors with their traces.")
    add("--version", action="version", version=f"{PROGRAM} {__version__}", help="Print the version.")
    return parser


def _choice(kind: type[E]) -> Callable[[str], E]:
    def of(text: str) -> E:
        try:
            return kind(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(kind)}") from None

    return of


def _all(kind: type[StrEnum]) -> str:
    return "|".join(kind)


def _read(given: argparse.Namespace) -> Options | None:
    """What was asked for; options that are keys have the key's name."""
    values = {key: getattr(given, key, None) for key in VerifySettings.__struct_encode_fields__}
    over = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in values.items()
        if value is not None
    }
    file = {} if given.config is None else read_properties_file(given.config)
    loaded = build_settings(VerifySettings, file, from_environment(VerifySettings), over)
    if given.print_config:
        sys.stdout.write(loaded.as_properties().decode())
        return None
    return Options(
        settings=loaded.settings,
        unknown_keys=loaded.unknown_keys,
        config=given.config,
        places=_places(
            given.replica, given.sidecar, loaded.settings.replicas, least=1 if loaded.settings.ledger_file else 2
        ),
        output=given.output,
        plan=given.plan,
        verbose=given.verbose,
        quiet=given.quiet,
    )


def _places(replicas: Sequence[str], sidecars: Sequence[str], configured: str, *, least: int) -> tuple[Place, ...]:
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
    if len(places) < least:
        often = "" if least == 1 else " at least twice"
        raise SpecError(
            f"a comparison needs {'a replica' if least == 1 else 'two replicas'}: give --replica NAME=DIRECTORY (a "
            f"storePathRootDir) or --sidecar NAME=HOST:PORT{often}, or the key replicas; one is enough with --ledger"
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
    from rocketmq_verify.history.runs import Group  # noqa: PLC0415
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
        ledger_path=settings.ledger_file,
        engine=engine,
        spark=SessionOptions(master=settings.spark_master or None, conf=settings.conf(), verbose=options.verbose),
    )
