"""`controller config NAME`: what the members run with, asked over the remoting protocol as mqadmin does it.

A module of its own, since no other verb loads that protocol.
"""

import asyncio
from collections.abc import Mapping

from rocketmq_admin import errors as admin_errors
from rocketmq_admin.caller import Caller
from rocketmq_admin.controllers import get_config
from rocketmq_kubectl import output
from rocketmq_kubectl.cluster.session import Session, gather_results
from rocketmq_kubectl.errors import CommandRefusedError, PluginError, UnreachableError
from rocketmq_kubectl.run import Report
from rocketmq_resources import names
from rocketmq_runtime.remoting.client import RemotingClient


async def config(session: Session, name: str) -> Report:
    """What each member runs with (mqadmin's getControllerConfig); keys that differ are shown by member."""
    await session.controller_body(session.namespace, name)
    pods = [pod for pod in await session.pods(session.namespace, "controller", name) if pod.reachable]
    if not pods:
        raise UnreachableError(f"no pod of ControllerCluster {name} is running: see kubectl rocketmq status")
    answers = await gather_results([_config_of(session, pod.name) for pod in pods])
    named = list(zip((pod.name for pod in pods), answers, strict=True))
    configs = {pod: answer for pod, answer in named if not isinstance(answer, PluginError)}
    problems = tuple(answer for answer in answers if isinstance(answer, PluginError))
    rows: list[tuple[str, str, str]] = []
    for key in sorted({key for values in configs.values() for key in values}):
        held = {pod: values.get(key, "") for pod, values in configs.items()}
        if len(set(held.values())) == 1:
            rows.append((key, next(iter(held.values())), "all"))
        else:
            rows += [(key, value, pod) for pod, value in held.items()]
    document = {"namespace": session.namespace, "name": name, "controllers": [
        {"pod": pod, "config": dict(sorted(values.items()))} for pod, values in configs.items()
    ]}  # fmt: skip
    return Report(output.table(("KEY", "VALUE", "POD"), rows) if rows else "", document, problems)


async def _config_of(session: Session, pod: str) -> Mapping[str, str]:
    address = await session.forwards.address(session.namespace, pod, names.PORT_CONTROLLER)
    client = RemotingClient(connect_timeout=session.kube.timeout)
    try:
        async with asyncio.timeout(2 * session.kube.timeout):
            return (await get_config(Caller(client, session.kube.timeout), address)).values
    except (admin_errors.AdminError, TimeoutError) as error:
        reason = str(error).replace(address, f"pod {pod}") or "no answer in time"
        if not isinstance(error, admin_errors.UnreachableError | TimeoutError):
            raise CommandRefusedError(reason) from error
        # how a connection ends depends on who is quicker; what the pod's side has said does not
        why = session.forwards.problem(address)
        raise UnreachableError(f"pod {session.namespace}/{pod} does not answer: {why}" if why else reason) from error
    finally:
        await client.close()
