"""Follows the Job of a comparison: its log, and why its pods do not start. Called by `verify`."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from rocketmq_kubectl import output
from rocketmq_kubectl.cluster import resources
from rocketmq_kubectl.cluster.session import Session
from rocketmq_kubectl.errors import ForbiddenError, PluginError, TimedOutError
from rocketmq_resources import names

POLL: Final = 1.0
"""Seconds."""
MAX_LOG: Final = 4 * 1024 * 1024
MAX_TROUBLE: Final = 300
"""Characters."""
PASSING: Final = frozenset({"ContainerCreating", "PodInitializing", "ErrImagePull"})
"""Reasons of containers that will start soon; after ErrImagePull comes ImagePullBackOff for the same problem."""
PATIENCE: Final = 5
"""Consecutive polls with the same trouble before it is reported, since a pod may wait for a moment."""


class Follower:
    """Shows the log of a Job's pods as it grows, and why its driver or an executor does not start."""

    def __init__(self, session: Session, group: str, job: str) -> None:
        self._session, self._group, self._job = session, group, job
        self.trouble = ""
        """The trouble that was reported last."""
        self._seen: dict[str, tuple[str, int]] = {}
        self._shown: dict[str, int] = {}
        self._allowed = True

    async def end(self, path: str, seconds: float) -> str | None:
        """Wait for the Job's end: why it failed, or None.

        Raises:
            TimedOutError: not within `seconds`; the Job continues.
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
                    f"Job {self._job} has not ended after {seconds:g} s; it continues:"
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
            self._report_trouble([*drivers, *(body for body in found if _owners(body) & uids)])
        except ForbiddenError as error:
            self._allowed = False
            self._session.progress(f"cannot show its log: {error}")

    async def _show_pod(self, path: str, pod: str) -> None:
        query = {"container": names.CONTAINER_VERIFY, "limitBytes": str(MAX_LOG)}
        try:
            text = await self._session.kube.text(path, query)
        except ForbiddenError:
            raise
        except PluginError:
            return  # not started yet, or deleted
        whole = text[: text.rfind("\n") + 1]
        for line in whole[self._shown.get(pod, 0) :].splitlines():
            self._session.progress(output.cell(line.rstrip()))
        self._shown[pod] = len(whole)

    def _report_trouble(self, pods: Iterable[Mapping[str, object]]) -> None:
        """Report a trouble that a pod has had for some polls, once until it changes."""
        for body in pods:
            name, why = _name(body), _trouble(body)
            before, polls = self._seen.get(name, ("", 0))
            polls = polls + 1 if why == before else 1
            self._seen[name] = why, polls
            if why and polls == PATIENCE:
                self.trouble = f"pod {name} does not start: {output.cell(why)}"
                self._session.progress(self.trouble)


def _ended(job: Mapping[str, object]) -> tuple[bool, str | None]:
    """Whether the Job has ended, and why it failed."""
    conditions = mapping(job, "status").get("conditions")
    for condition in conditions if isinstance(conditions, list) else []:
        if (
            isinstance(condition, Mapping)
            and condition.get("status") == "True"
            and condition.get("type") in ("Complete", "Failed")
        ):
            return True, None if condition["type"] == "Complete" else str(
                condition.get("message") or condition.get("reason") or ""
            )
    return False, None


def _trouble(pod: Mapping[str, object]) -> str:
    """Reason and message of the trouble, cut so that it does not differ between polls."""
    status = mapping(pod, "status")
    conditions = status.get("conditions")
    for condition in conditions if isinstance(conditions, list) else []:
        if (
            isinstance(condition, Mapping)
            and condition.get("type") == "PodScheduled"
            and condition.get("status") == "False"
        ):
            return f"{condition.get('reason')}: {condition.get('message')}"[:MAX_TROUBLE]
    containers = status.get("containerStatuses")
    for container in containers if isinstance(containers, list) else []:
        waiting = mapping(mapping(container, "state"), "waiting") if isinstance(container, Mapping) else {}
        if waiting and waiting.get("reason") not in PASSING:
            return f"{waiting.get('reason')}: {waiting.get('message')}"[:MAX_TROUBLE]
    return ""


def _name(body: Mapping[str, object]) -> str:
    return str(mapping(body, "metadata").get("name"))


def _owners(body: Mapping[str, object]) -> set[object]:
    owners = mapping(body, "metadata").get("ownerReferences")
    return (
        {reference.get("uid") for reference in owners if isinstance(reference, Mapping)}
        if isinstance(owners, list)
        else set()
    )


def mapping(body: Mapping[str, object], key: str) -> Mapping[str, object]:
    """The object under that key; empty if it is absent."""
    value = body.get(key)
    return value if isinstance(value, Mapping) else {}
