"""Shell completion as kubectl asks its plugins for it: `kubectl_complete-rocketmq WORD... LAST`.

kubectl calls this program with the words after `kubectl rocketmq`, the one being typed last (empty if none is begun),
and reads one proposal a line (`name<TAB>description`) and a last line `:N`, cobra's directive. Names of groups, pods
and controllers come from the cluster, within `SECONDS` or not at all: a completion never complains and never hangs.
"""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

import typer

from rocketmq_kubectl.__main__ import ALIASES
from rocketmq_kubectl.cli import app

NO_FILES: Final = 4
"""cobra's ShellCompDirectiveNoFileComp."""
DEFAULT: Final = 0
"""The shell completes file names."""
SECONDS: Final = 1.5
"""For all calls of the API server together."""

GROUP_VERBS: Final = frozenset(
    {
        "get-sync-state-set", "status", "epochs", "report", "switchover", "fence", "pause", "resume", "hibernate",
        "wake", "restart", "verify", "rebuild", "elect-master",
    }
)  # fmt: skip
POD_VERBS: Final = frozenset({"switchover", "rebuild", "elect-master"})
"""Their second word is a pod of the group."""
CLUSTER_VERBS: Final = frozenset({"status", "transfer-leader", "config"})
"""Of `controller`."""
FORMS: Final = ("table", "wide", "json", "yaml")
VALUE_FLAGS: Final = frozenset(
    {"-n", "--namespace", "--context", "--kubeconfig", "--request-timeout", "-o", "--output", "-i", "--interval",
     "--timeout", "--tail"}
)  # fmt: skip
CONNECTION_FLAGS: Final = {
    "-n": "namespace",
    "--namespace": "namespace",
    "--context": "context",
    "--kubeconfig": "kubeconfig",
}


def main() -> None:
    """The console script `kubectl_complete-rocketmq`."""
    proposals, directive = complete(sys.argv[1:])
    sys.stdout.write("".join(f"{proposal}\n" for proposal in proposals) + f":{directive}\n")
    sys.stdout.flush()
    os._exit(0)  # do not wait for running requests


def complete(
    words: Sequence[str], *, query: Callable[[dict[str, str], Sequence[str]], list[str]] | None = None
) -> tuple[list[str], int]:
    """Proposals and directive; `query` finds names in the cluster (None: by calling the API server)."""
    *before, last = words or [""]
    if before and before[-1] in VALUE_FLAGS:
        proposals, directive = _values(before)
    else:
        proposals, directive = _words(before, last, query or _query_cluster), NO_FILES
    return [proposal for proposal in proposals if proposal.startswith(last)], directive


def _values(before: Sequence[str]) -> tuple[Sequence[str], int]:
    """For the flag that comes last in `before`."""
    is_output = before[-1] in {"-o", "--output"}
    if before[-1] == "--kubeconfig" or (is_output and "report" in before):
        return (), DEFAULT
    return FORMS if is_output else (), NO_FILES


def _words(
    before: Sequence[str], last: str, query: Callable[[dict[str, str], Sequence[str]], list[str]]
) -> Sequence[str]:
    """A flag, a verb, or a name."""
    given, connection = _split(before)
    given = [ALIASES.get(word.lower(), word) for word in given]
    if last.startswith("-"):
        return _flags_of(given)
    if not given:
        return _verbs()
    if given == ["controller"]:
        return _verbs("controller")
    return query(connection, given) if _takes_name(given) else ()


def _split(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Words that are no flags, and the flags that say which cluster is meant."""
    given: list[str] = []
    connection: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        name, sign, value = word.partition("=")
        if not word.startswith("-"):
            given.append(word)
        elif sign:
            if name in CONNECTION_FLAGS:
                connection[CONNECTION_FLAGS[name]] = value
        elif word in VALUE_FLAGS:
            value = next(rest, "")
            if word in CONNECTION_FLAGS:
                connection[CONNECTION_FLAGS[word]] = value
    return given, connection


def _takes_name(given: Sequence[str]) -> bool:
    if given[0] == "controller":
        return len(given) == 2 and given[1] in CLUSTER_VERBS
    return (len(given) == 1 and given[0] in GROUP_VERBS) or (len(given) == 2 and given[0] in POD_VERBS)


def _verbs(group: str | None = None) -> list[str]:
    from rocketmq_kubectl.cli_controller import controller_app  # noqa: PLC0415 - as the program registers it

    of = app if group is None else controller_app
    found = [
        (info.name or "", (info.callback.__doc__ or "") if info.callback else "") for info in of.registered_commands
    ]
    if group is None:
        found.append(("controller", "The controllers: who leads, hand leadership over, their configuration."))
    return sorted(f"{name}\t{doc.splitlines()[0] if doc else ''}" for name, doc in found)


def _flags_of(given: Sequence[str]) -> list[str]:
    command = typer.main.get_command(app)
    for word in given[:2]:
        command = getattr(command, "commands", {}).get(word, command)
    flags = [
        (option, getattr(parameter, "help", "") or "") for parameter in command.params for option in parameter.opts
    ]
    return sorted(f"{option}\t{text}" for option, text in flags if option.startswith("-"))


def _query_cluster(connection: dict[str, str], given: Sequence[str]) -> list[str]:
    """Names from the cluster; none if it does not answer in time."""
    from rocketmq_kubectl.cluster import resources  # noqa: PLC0415 - static completion needs no cluster
    from rocketmq_kubectl.cluster.kube import connect  # noqa: PLC0415
    from rocketmq_kubectl.cluster.kube_options import KubeOptions  # noqa: PLC0415
    from rocketmq_kubectl.errors import PluginError  # noqa: PLC0415
    from rocketmq_resources import names  # noqa: PLC0415

    async def find() -> list[str]:
        kube = connect(
            KubeOptions(
                namespace=connection.get("namespace"),
                context=connection.get("context"),
                kubeconfig=connection.get("kubeconfig"),
                request_timeout=SECONDS,
            )
        )
        query: dict[str, str] = {}
        if given[0] in POD_VERBS and len(given) == 2:
            path = resources.core(kube.namespace, "pods")
            query = {"labelSelector": names.selector_text("broker", given[1])}
        else:
            path = resources.collection(
                "ControllerCluster" if given[0] == "controller" else "BrokerGroup", kube.namespace
            )
        async with asyncio.timeout(SECONDS):
            return sorted(map(resources.name_of, await kube.items(path, query)))

    with contextlib.suppress(PluginError, TimeoutError):
        return asyncio.run(find())
    return []


if __name__ == "__main__":
    main()
