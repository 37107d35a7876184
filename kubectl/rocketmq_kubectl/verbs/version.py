"""`version`: this plugin, the API server, and what the operator can say of itself by its pods' images."""

import asyncio
from collections.abc import Mapping

from rocketmq_kubectl import output
from rocketmq_kubectl.cluster.session import Session
from rocketmq_kubectl.errors import NotFoundError, PluginError
from rocketmq_kubectl.run import Report
from rocketmq_resources import names
from rocketmq_runtime.version import __version__

OPERATOR_SELECTOR = "app.kubernetes.io/name=rocketmq-operator"


async def version(session: Session) -> Report:
    """What runs where; a cluster that does not answer is a problem, not the end."""
    try:
        server, api, images = await asyncio.gather(_server(session), _api(session), _operators(session))
    except PluginError as error:
        return Report(output.facts([("Plugin", __version__)]), {"plugin": __version__, "kubernetes": None}, (error,))
    table = output.facts(
        [
            ("Plugin", __version__),
            ("Kubernetes", server),
            ("API", names.API_VERSION if api else f"{names.API_VERSION} is not installed"),
            ("Operator", ", ".join(images) or "no pod seen in this namespace"),
        ]
    )
    document = {"plugin": __version__, "kubernetes": server, "apiInstalled": api, "operatorImages": images}
    return Report(table, document)


async def _server(session: Session) -> str:
    return str((await session.kube.get("/version")).get("gitVersion"))


async def _api(session: Session) -> bool:
    try:
        await session.kube.get(f"/apis/{names.API_VERSION}")
    except NotFoundError:
        return False
    return True


async def _operators(session: Session) -> list[str]:
    """Images of operators in all namespaces, or in ours without the right to list all."""
    query = {"labelSelector": OPERATOR_SELECTOR}
    for path in ("/api/v1/pods", f"/api/v1/namespaces/{session.namespace}/pods"):
        try:
            pods = await session.kube.items(path, query)
        except PluginError:
            continue
        return sorted({image for pod in pods for image in _images(pod)})
    return []


def _images(pod: Mapping[str, object]) -> list[str]:
    spec = pod.get("spec")
    containers = spec.get("containers") if isinstance(spec, Mapping) else None
    found = containers if isinstance(containers, list) else []
    return [str(container.get("image")) for container in found if isinstance(container, Mapping)]
