"""The commands' options: mqadmin's letters and long names, and how their texts become values."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import typer

from rocketmq_admin.errors import WrongUsageError
from rocketmq_api.client_tls import ClientTls
from rocketmq_formats.addresses import parse_addresses as parse_list


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
GrpcControllers = Annotated[
    str,
    typer.Option(
        "-g", "--controllerGrpcAddress", metavar="HOST:PORT[;...]", help="gRPC ports of controllers; any of them."
    ),
]
MemberId = Annotated[str, typer.Option("-i", "--memberId", metavar="ID", help="The controller's id.")]
TlsCertificate = Annotated[
    str | None, typer.Option("--tlsCert", metavar="FILE", help="Our certificate, where the port requires one.")
]
TlsKey = Annotated[str | None, typer.Option("--tlsKey", metavar="FILE", help="Its key.")]
TlsAuthority = Annotated[
    str | None, typer.Option("--tlsCa", metavar="FILE", help="The authority that signs the controllers' certificates.")
]
EachController = Annotated[
    str,
    typer.Option("-a", "--controllerAddress", metavar="HOST:PORT[;...]", help="Controllers; each of them is called."),
]
NameServers = Annotated[
    str | None,
    typer.Option(
        "-n",
        "--namesrvAddr",
        metavar="HOST:PORT[;...]",
        envvar="NAMESRV_ADDR",
        show_envvar=True,
        help="Name servers; the first that answers is used.",
    ),
]
UnusedNameServers = Annotated[
    str | None,
    typer.Option(
        "-n", "--namesrvAddr", metavar="HOST:PORT[;...]", help="Accepted for compatibility with mqadmin, not used."
    ),
]
BrokerName = Annotated[str, typer.Option("-bn", "--brokerName", metavar="NAME", help="Name of the broker group.")]
FetchBrokerName = Annotated[
    str | None, typer.Option("-b", "--brokerName", metavar="NAME", help="The broker group with this name.")
]
FetchClusterName = Annotated[
    str | None,
    typer.Option("-c", "--clusterName", metavar="NAME", help="All broker groups of this cluster, by a name server."),
]
Interval = Annotated[
    int | None,
    typer.Option("-i", "--interval", metavar="SECONDS", min=1, max=86_400, help="Repeat until Ctrl-C."),
]
Format = Annotated[
    OutputFormat, typer.Option("-o", "--output", help="table: mqadmin's layout; json: one line per result.")
]
TimeOut = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", min=0.1, max=300, help="How long each process may take to answer."),
]

DEFAULT_TIMEOUT = 3.0
"""mqadmin's, in seconds."""


@dataclass(frozen=True)
class Target:
    """Which broker groups: one by its name, or, where that is empty, all of a cluster."""

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
        raise WrongUsageError("give a broker group (-b) or a cluster (-c)")
    return Target("", required(cluster, "-c"))


def parse_addresses(text: str, option: str) -> Sequence[str]:
    """The addresses of `host:port;host:port`, without repetitions; blanks around them do not count.

    Raises:
        WrongUsageError: no address, or one that does not parse.
    """
    try:
        addresses = parse_list(text)
    except ValueError as error:
        raise WrongUsageError(f"{option}: {error}") from error
    if not addresses:
        raise WrongUsageError(f"{option}: no address given")
    return addresses


def parse_name_servers(text: str | None) -> Sequence[str]:
    """The name servers of -n or NAMESRV_ADDR.

    Raises:
        WrongUsageError: neither is there, or an address does not parse.
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


def tls_of(certificate: str | None, key: str | None, authority: str | None) -> ClientTls | None:
    """Files for mutual TLS; None: plaintext.

    Raises:
        WrongUsageError: some of them are missing.
    """
    if certificate and key and authority:
        return ClientTls(cert_file=certificate, key_file=key, ca_file=authority)
    if certificate or key or authority:
        raise WrongUsageError("--tlsCert, --tlsKey and --tlsCa go together")
    return None


def required(text: str, option: str) -> str:
    """`text` without the blanks around it, as mqadmin reads values.

    Raises:
        WrongUsageError: nothing is left.
    """
    stripped = text.strip()
    if not stripped:
        raise WrongUsageError(f"{option}: must not be empty")
    return stripped
