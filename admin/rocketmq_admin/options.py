"""The commands' options: mqadmin's letters and long names, and how their texts become values."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from rocketmq_admin.errors import WrongUsageError
from rocketmq_runtime.client import parse_address


class OutputFormat(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


Controllers = Annotated[
    str,
    typer.Option(
        "-a", "--controllerAddress", metavar="HOST:PORT[;...]", help="Controllers; any of them, dead or alive."
    ),
]
EachController = Annotated[
    str,
    typer.Option("-a", "--controllerAddress", metavar="HOST:PORT[;...]", help="Controllers, each of them is asked."),
]
NameServers = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namesrvAddr",
        metavar="HOST:PORT[;...]",
        envvar="NAMESRV_ADDR",
        show_envvar=True,
        help="Name servers; the first that answers is taken.",
    ),
]
UnusedNameServers = Annotated[
    str | None,
    typer.Option("-n", "--namesrvAddr", metavar="HOST:PORT[;...]", help="Taken for mqadmin's sake, not used."),
]
BrokerName = Annotated[str, typer.Option("-bn", "--brokerName", metavar="NAME", help="Name of the broker set.")]
FetchBrokerName = Annotated[
    str | None, typer.Option("-b", "--brokerName", metavar="NAME", help="The broker set with this name.")
]
FetchClusterName = Annotated[
    str | None,
    typer.Option("-c", "--clusterName", metavar="NAME", help="All broker sets of this cluster (asks a name server)."),
]
Interval = Annotated[
    int | None,
    typer.Option("-i", "--interval", metavar="SECONDS", min=1, max=86_400, help="Print again and again until Ctrl-C."),
]
Format = Annotated[
    OutputFormat, typer.Option("-o", "--output", help="table: mqadmin's layout; json: one line per result.")
]
TimeOut = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="SECONDS", min=0.1, max=300, help="How long each process asked may take to answer."
    ),
]

DEFAULT_TIMEOUT = 3.0
"""mqadmin's, in seconds."""


@dataclass(frozen=True)
class Target:
    """Which broker sets: one by its name, or, where that is empty, all of a cluster."""

    broker_name: str
    cluster_name: str


def parse_target(broker: str | None, cluster: str | None) -> Target:
    """What -b and -c name; -b wins, as in mqadmin.

    Raises:
        WrongUsageError: neither is given, or a blank one.
    """
    if broker is not None:
        return Target(required(broker, "-b"), "")
    if cluster is None:
        raise WrongUsageError("give a broker set (-b) or a cluster (-c)")
    return Target("", required(cluster, "-c"))


def parse_addresses(text: str, option: str) -> Sequence[str]:
    """The addresses of `host:port;host:port`, without repetitions; blanks around them do not count.

    Raises:
        WrongUsageError: none given, or one that is none.
    """
    addresses = list(dict.fromkeys(part.strip() for part in text.split(";") if part.strip()))
    if not addresses:
        raise WrongUsageError(f"{option}: no address given")
    for address in addresses:
        try:
            parse_address(address)
        except ValueError as error:
            raise WrongUsageError(f"{option}: {error}") from error
    return addresses


def parse_name_servers(text: str | None) -> Sequence[str]:
    """The name servers of -n or NAMESRV_ADDR.

    Raises:
        WrongUsageError: neither is there, or an address is none.
    """
    if text is None:
        raise WrongUsageError("name servers are needed: give -n host:port or set NAMESRV_ADDR")
    return parse_addresses(text, "-n (or NAMESRV_ADDR)")


def parse_broker_ids(text: str | None) -> Sequence[int]:
    """The ids of `1;2;3`; empty for None.

    Raises:
        WrongUsageError: anything else.
    """
    if text is None:
        return []
    ids = [part.strip() for part in text.split(";") if part.strip()]
    if not ids or not all(part.isascii() and part.isdecimal() for part in ids):
        raise WrongUsageError(f"-b: broker ids look like 1;2;3, not {text!r}")
    return [int(part) for part in ids]


def required(text: str, option: str) -> str:
    """`text` without the blanks around it, as mqadmin takes values.

    Raises:
        WrongUsageError: nothing is left.
    """
    stripped = text.strip()
    if not stripped:
        raise WrongUsageError(f"{option}: must not be empty")
    return stripped
