"""`verify GROUP`: compare the replicas' logs now rather than when it is due, with the Job the schedule would make."""

from collections.abc import Mapping

from rocketmq_kubectl import change
from rocketmq_kubectl.errors import NotFoundError, RefusedError
from rocketmq_kubectl.run import Report
from rocketmq_kubectl.session import Session
from rocketmq_operator.domain import names

INSTANTIATE = "cronjob.kubernetes.io/instantiate"
MAX_NAME = 63
"""Of a Job: its pods carry it in a label."""


async def verify(session: Session, name: str) -> Report:
    """Make a Job of the group's CronJob."""
    now = change.seen(await session.group_body(name))
    if now.group.spec.verification is None:
        raise RefusedError(
            f"no verification is configured for {name}: set spec.verification.schedule (the job is made from it)"
        )
    cron_job = names.verification(name)
    base = f"/apis/batch/v1/namespaces/{session.namespace}"
    try:
        body = await session.kube.get(f"{base}/cronjobs/{cron_job}")
    except NotFoundError as error:
        raise RefusedError(
            f"verification of {name} is configured, but its CronJob {cron_job} is not there (yet):"
            f" does this operator's release make it? see kubectl rocketmq status {name}"
        ) from error
    made = await session.kube.create(f"{base}/jobs", _job(body, cron_job, session))
    job = str(_mapping(made, "metadata").get("name"))
    text = f"Job {job} compares the logs of {name}: kubectl -n {session.namespace} logs -f job/{job}"
    return change.done(now, text, job=job)


def _job(cron_job: Mapping[str, object], cron_name: str, session: Session) -> Mapping[str, object]:
    """As `kubectl create job --from=cronjob/...` makes it: owned by the CronJob, so that it is cleaned up with it."""
    template = _mapping(_mapping(cron_job, "spec"), "jobTemplate")
    metadata = _mapping(template, "metadata")
    suffix = session.now().strftime("-%m%d%H%M%S")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": cron_name[: MAX_NAME - len(suffix)] + suffix,
            "labels": metadata.get("labels") or {},
            "annotations": {**_mapping(metadata, "annotations"), INSTANTIATE: "manual"},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "CronJob",
                    "name": cron_name,
                    "uid": _mapping(cron_job, "metadata").get("uid"),
                }
            ],
        },
        "spec": template.get("spec"),
    }


def _mapping(body: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = body.get(key)
    return value if isinstance(value, Mapping) else {}
