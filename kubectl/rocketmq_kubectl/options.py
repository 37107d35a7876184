"""kubectl's global flags on every verb, before or after its name.

typer has no flags that all commands share, so `with_flags` adds them to a function's signature and passes them as one
`Flags`; the same flags on the program itself (before the verb) are the defaults.
"""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Annotated

import msgspec
import typer

from rocketmq_kubectl.cluster.kube_options import KubeOptions
from rocketmq_kubectl.errors import WrongUsageError
from rocketmq_kubectl.output import Form

Namespace = Annotated[
    str | None, typer.Option("-n", "--namespace", metavar="NAME", help="Namespace; default: that of the context.")
]
Context = Annotated[str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.")]
Kubeconfig = Annotated[str | None, typer.Option("--kubeconfig", metavar="FILE", help="Default: KUBECONFIG.")]
RequestTimeout = Annotated[
    str | None,
    typer.Option("--request-timeout", metavar="TIME", help="Per request to the API server: 5, 5s, 1m. [10s]"),
]
Output = Annotated[Form | None, typer.Option("-o", "--output", help="Format of the result. [table]")]

Group = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the BrokerGroup.")]
AllNamespaces = Annotated[bool, typer.Option("-A", "--all-namespaces", help="Groups of all namespaces.")]
Interval = Annotated[
    int | None,
    typer.Option("-i", "--interval", metavar="SECONDS", min=1, max=86_400, help="Repeat until Ctrl-C."),
]
Wait = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="SECONDS", min=0, max=3600, help="How long to wait for the effect; 0: do not wait."
    ),
]

DEFAULT_REQUEST_TIMEOUT = 10.0
MAX_REQUEST_TIMEOUT = 600.0


class Flags(msgspec.Struct, frozen=True, kw_only=True):
    """The given flags; None: not given."""

    namespace: str | None = None
    context: str | None = None
    kubeconfig: str | None = None
    request_timeout: str | None = None
    output: Form | None = None

    def over(self, other: "Flags") -> "Flags":
        """These flags, with those of `other` for flags that were not given."""
        given = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        return msgspec.structs.replace(other, **given)

    @property
    def form(self) -> Form:
        return self.output or Form.TABLE

    @property
    def kube(self) -> KubeOptions:
        return KubeOptions(
            namespace=self.namespace,
            context=self.context,
            kubeconfig=self.kubeconfig,
            request_timeout=seconds(self.request_timeout),
        )


def seconds(text: str | None) -> float:
    """--request-timeout in kubectl's format; None is the default, and 0 (no limit in kubectl) the longest.

    Raises:
        WrongUsageError: not a duration.
    """
    if text is None:
        return DEFAULT_REQUEST_TIMEOUT
    parts = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)(ms|s|m|h)?", text.strip())
    if parts is None:
        raise WrongUsageError(f"--request-timeout: {text!r} is not a time such as 5, 5s or 1m")
    number = float(parts[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600}[parts[2] or "s"]
    return min(number or MAX_REQUEST_TIMEOUT, MAX_REQUEST_TIMEOUT)


def _flags(
    *,
    namespace: Namespace = None,
    context: Context = None,
    kubeconfig: Kubeconfig = None,
    request_timeout: RequestTimeout = None,
    output: Output = None,
) -> Flags:
    return Flags(
        namespace=namespace, context=context, kubeconfig=kubeconfig, request_timeout=request_timeout, output=output
    )


_FLAG_PARAMETERS = inspect.signature(_flags).parameters


def with_flags(*, without: frozenset[str] = frozenset()) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Decorates a verb's function, whose first parameter is `Flags`: typer sees its own parameters, then kubectl's
    flags (except those in `without`)."""

    def decorate(verb: Callable[..., int]) -> Callable[..., int]:
        own = list(inspect.signature(verb).parameters.values())[1:]
        shared = [parameter for name, parameter in _FLAG_PARAMETERS.items() if name not in without]

        @functools.wraps(verb)
        def called(**given: object) -> int:
            flags = msgspec.convert({flag.name: given.pop(flag.name) for flag in shared}, Flags)
            return verb(flags.over(before_the_verb()), **given)

        signature = inspect.Signature([*own, *shared], return_annotation=int)
        called.__signature__ = signature  # type: ignore[attr-defined] # what inspect looks for
        called.__annotations__ = {name: p.annotation for name, p in signature.parameters.items()} | {"return": int}
        return called

    return decorate


_remembered: list[Flags] = []


def before_the_verb() -> Flags:
    """The flags that were given before the verb."""
    return _remembered[-1] if _remembered else Flags()


def remember(flags: Flags) -> None:
    """Called by the program's callback; each command line replaces the flags."""
    _remembered[:] = [flags]
