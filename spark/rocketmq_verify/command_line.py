"""What `rocketmq-verify` was asked for: options over environment over configuration file. For `cli`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from rocketmq_runtime.settings import build_settings, from_environment, read_properties_file, to_text_values
from rocketmq_runtime.version import __version__
from rocketmq_verify.settings import VerifySettings
from rocketmq_verify.sizes import parse_size
from rocketmq_verify.sources import SIDECAR, SourceOptions, SpecError
from rocketmq_verify.work import Place, parse_place, parse_places

if TYPE_CHECKING:
    from rocketmq_verify.run import Request

PROGRAM: Final = "rocketmq-verify"
_EXAMPLE: Final = """\
examples:
  %(prog)s --replica a=/data/a/store --replica b=/data/b/store --replica c=/data/c/store
  %(prog)s --sidecar a=broker-a-0:10920 --sidecar b=broker-a-1:10920 --history /var/lib/verify -o json
exit codes: 0 aligned, 1 mismatch, 2 usage, 3 not verified, 130 interrupted
Every configuration key may also come from the environment: ROCKETMQ_<KEY>."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for."""

    settings: VerifySettings
    places: tuple[Place, ...]
    output: str = "text"
    plan: bool = False
    verbose: bool = False
    quiet: bool = False


def parse(arguments: Sequence[str] | None) -> Options | None:
    """What was asked for; None: it is done already (--print-config).

    Raises:
        SettingsError, SpecError, ValueError: wrong configuration or options; the text says which.
        SystemExit: --help, --version, or options that argparse refuses.
    """
    given = _parser().parse_args(arguments)
    file = {} if given.config is None else read_properties_file(given.config)
    loaded = build_settings(VerifySettings, file, from_environment(VerifySettings), _over(given))
    settings = loaded.settings
    if given.print_config:
        for key, value in to_text_values(settings).items():
            print(f"{key}={value}")
        return None
    if loaded.unknown_keys:
        print(f"{PROGRAM}: not known and ignored: {', '.join(loaded.unknown_keys)}", file=sys.stderr)
    places = [parse_place(text) for text in given.replica] + [parse_place(text, SIDECAR) for text in given.sidecar]
    places = places or list(parse_places(settings.replicas))
    names = [place.name for place in places]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SpecError(f"replica {twice[0]} is given twice")
    specs: dict[str, str] = {}
    for place in places:
        if (other := specs.setdefault(place.spec.rstrip("/"), place.name)) != place.name:
            raise SpecError(f"{other} and {place.name} are the same place: a log always agrees with itself")
    if len(places) < 2:
        raise SpecError(
            "it takes two replicas to compare: give --replica NAME=DIRECTORY (a storePathRootDir) or --sidecar "
            "NAME=HOST:PORT at least twice, or the key replicas"
        )
    return Options(
        settings=settings,
        places=tuple(places),
        output=given.output,
        plan=given.plan,
        verbose=given.verbose,
        quiet=given.quiet,
    )


def request_of(options: Options) -> "Request":
    """What the job is asked for."""
    from rocketmq_verify.history_rows import Group  # noqa: PLC0415 - imports Arrow
    from rocketmq_verify.run import Request  # noqa: PLC0415
    from rocketmq_verify.session import SessionOptions  # noqa: PLC0415

    settings = options.settings
    return Request(
        group=Group(settings.broker_cluster_name, settings.broker_name),
        places=options.places,
        options=SourceOptions(
            tls=settings.tls, bytes_per_second=parse_size(settings.rate_limit), patience=settings.patience_seconds
        ),
        chunk_size=parse_size(settings.chunk_size),
        sample=settings.sample,
        full=settings.full,
        structure=settings.structure,
        queues=settings.queues,
        allow_unreachable=settings.allow_unreachable,
        broker_group=settings.broker_group,
        history_path=settings.history_path,
        spark=SessionOptions(master=settings.spark_master or None, conf=settings.conf(), verbose=options.verbose),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Prove that the replicas of a RocketMQ broker group have equal commit logs, or name what differs.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--replica", action="append", default=[], metavar="NAME=DIR", help="a replica's storePathRootDir; repeat")
    add("--sidecar", action="append", default=[], metavar="NAME=HOST:PORT", help="a replica by its sidecar; repeat")
    add("--group", metavar="NAME", help="the brokers' brokerName: whose history it is")
    add("--chunk-size", metavar="SIZE", help="bytes compared as one, a power of two from 4Ki to 64Mi (1Mi)")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--full", action="store_const", const=True, help="read everything, whatever was compared before")
    how.add_argument("--sample", metavar="PART", help="0 to 1: how much of what was compared before is read (0.01)")
    add("--history", metavar="PATH", help="directory or URI where results and watermarks are kept")
    add("--rate", metavar="SIZE", help="bytes per second read of each replica at the most, 200Mi for example")
    add("--structure", action=argparse.BooleanOptionalAction, default=None, help="check records' structure (yes)")
    add("--queues", action=argparse.BooleanOptionalAction, default=None, help="check consume queues (yes)")
    add("--allow-unreachable", action="store_const", const=True, help="two readable replicas are enough")
    add("-o", "--output", choices=("text", "json"), default="text", help="form of the result (text)")
    add("--plan", action="store_true", help="say how to repair what was found; nothing is ever done")
    add("--report", metavar="FILE", help="write an HTML report")
    add("--master", metavar="URL", help="where Spark runs (local[*], or as spark-submit says)")
    add("--tls-cert", metavar="FILE", help="for sidecars with mutual TLS (PEM), with the next two")
    add("--tls-key", metavar="FILE", help="its key")
    add("--tls-ca", metavar="FILE", help="who signs the sidecars' certificates")
    add("-c", "--config", type=Path, metavar="FILE", help="configuration in Java properties form")
    add("-p", "--print-config", action="store_true", help="print every key with its value and exit")
    add("-q", "--quiet", action="store_true", help="no progress on standard error")
    add("-v", "--verbose", action="store_true", help="what Spark says goes to standard error, errors with their traces")
    add("--version", action="version", version=f"%(prog)s {__version__}")
    return parser


_KEYS: Final = {
    "group": "brokerName",
    "chunk_size": "chunkSize",
    "full": "full",
    "sample": "sample",
    "history": "historyPath",
    "rate": "rateLimit",
    "structure": "structure",
    "queues": "queues",
    "allow_unreachable": "allowUnreachable",
    "report": "reportFile",
    "master": "sparkMaster",
    "tls_cert": "tlsCertFile",
    "tls_key": "tlsKeyFile",
    "tls_ca": "tlsCaFile",
}
"""Options that stand for a key of the configuration."""


def _over(given: argparse.Namespace) -> dict[str, str]:
    found = {}
    for option, key in _KEYS.items():
        value = getattr(given, option)
        if value is not None:
            found[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return found
