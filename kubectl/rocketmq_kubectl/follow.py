"""Follows the Job of a comparison: what it logs, and what hinders its pods, which no log tells. Called by `verify`."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from rocketmq_kubectl import output, resources
from rocketmq_kubectl.errors import ForbiddenError, PluginError, TimedOutError
from rocketmq_kubectl.session import Session
from rocketmq_operator.domain import names

POLL: Final = 1.0
"""Seconds."""
MAX_LOG: Final = 4 * 1024 * 1024
MAX_TROUBLE: Final = 300
"""Characters."""
PASSING: Final = frozenset({"ContainerCreating", "PodInitializing", "ErrImagePull"})
"""Why containers wait that are about to start; after ErrImagePull comes ImagePullBackOff, which says the same."""
PATIENCE: Final = 5
"""Looks in a row that see the same trouble before it is told: a pod may well wait for a moment."""


class Follower:
    """Shows the log of a Job's pods as it grows, and why a pod of it, driver or executor, does not start."""

    def __init__(self, session: Session, group: str, job: str) -> None:
        self._session, self._group, self._job = session, group, job
        self.trouble = ""
        """The last that was told."""
        self._seen: dict[str, tuple[str, int]] = {}
        self._shown: dict[str, int] = {}
        self._allowed = True

    async def end(self, path: str, seconds: float) -> str | None:
        """Wait for the Job's end: why it failed, or None.

        Raises:
            TimedOutError: not within `seconds`; it goes on.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            body = await self._session.kube.get(path)
            ended, failed = _ended(body)
            await self._show()
            if ended:
                return failed
            if loop.time() >= deadline:
                raise TimedOutError(
                    f"Job {self._job} has not ended after {seconds:g} s; it goes on:"
                    f" kubectl -n {self._session.namespace} logs -f job/{self._job}"
                )
            await asyncio.sleep(POLL)

    async def _show(self) -> None:
        if not self._allowed:
            return
        pods = resources.core(self._session.namespace, "pods")
        selector = ",".join(f"{key}={value}" for key, value in names.selector("verify", self._group).items())
        try:
            found = await self._session.kube.items(pods, {"labelSelector": selector})
            drivers = [
                body for body in found if mapping(mapping(body, "metadata"), "labels").get("job-name") == self._job
            ]
            for pod in sorted(_name(body) for body in drivers):
                await self._show_pod(f"{pods}/{pod}/log", pod)
            uids = {mapping(body, "metadata").get("uid") for body in drivers}
            self._tell([*drivers, *(body for body in found if _owners(body) & uids)])
        except ForbiddenError as error:
            self._allowed = False
            self._session.progress(f"its log is not shown: {error}")

    async def _show_pod(self, path: str, pod: str) -> None:
        query = {"container": names.CONTAINER_VERIFY, "limitBytes": str(MAX_LOG)}
        try:
            text = await self._session.kube.text(path, query)
        except ForbiddenError:
            raise
        except PluginError:
            return  # it has not started yet, or is gone
        whole = text[: text.rfind("\n") + 1]
        for line in whole[self._shown.get(pod, 0) :].splitlines():
            self._session.progress(output.cell(line.rstrip()))
        self._shown[pod] = len(whole)

    def _tell(self, pods: Iterable[Mapping[str, object]]) -> None:
        """What has hindered a pod for some looks; once, until it is something else."""
        for body in pods:
            name, why = _name(body), _trouble(body)
            before, looks = self._seen.get(name, ("", 0))
            looks = looks + 1 if why == before else 1
            self._seen[name] = why, looks
            if why and looks == PATIENCE:
                self.trouble = f"pod {name} does not start: {output.cell(why)}"
                self._session.progress(self.trouble)


def _ended(job: Mapping[str, object]) -> tuple[bool, str | None]:
    """Whether the Job has, and why it failed."""
    conditions = mapping(job, "status").get("conditions")
    for one in conditions if isinstance(conditions, list) else []:
        if isinstance(one, Mapping) and one.get("status") == "True" and one.get("type") in ("Complete", "Failed"):
            return True, None if one["type"] == "Complete" else str(one.get("message") or one.get("reason") or "")
    return False, None


def _trouble(pod: Mapping[str, object]) -> str:
    """The kind of it, and what Kubernetes says; without the numbers that differ from look to look."""
    status = mapping(pod, "status")
    conditions = status.get("conditions")
    for one in conditions if isinstance(conditions, list) else []:
        if isinstance(one, Mapping) and one.get("type") == "PodScheduled" and one.get("status") == "False":
            return f"{one.get('reason')}: {one.get('message')}"[:MAX_TROUBLE]
    containers = status.get("containerStatuses")
    for one in containers if isinstance(containers, list) else []:
        waiting = mapping(mapping(one, "state"), "waiting") if isinstance(one, Mapping) else {}
        if waiting and waiting.get("reason") not in PASSING:
            return f"{waiting.get('reason')}: {waiting.get('message')}"[:MAX_TROUBLE]
    return ""


def _name(body: Mapping[str, object]) -> str:
    return str(mapping(body, "metadata").get("name"))


def _owners(body: Mapping[str, object]) -> set[object]:
    owners = mapping(body, "metadata").get("ownerReferences")
    return {one.get("uid") for one in owners if isinstance(one, Mapping)} if isinstance(owners, list) else set()


def mapping(body: Mapping[str, object], key: str) -> Mapping[str, object]:
    """What is under that key, empty if there is no object."""
    value = body.get(key)
    return value if isinstance(value, Mapping) else {}
