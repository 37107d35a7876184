"""`verify GROUP`: the result of the last comparison of the replicas' logs, or (`--now`) a comparison now.

`--now` creates the Job that the schedule would create, follows its log, and then shows the result. The exit code is
that of rocketmq-verify: 0 aligned, 1 different, 3 unknown.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from rocketmq_kubectl import output
from rocketmq_kubectl.cluster.session import Session
from rocketmq_kubectl.errors import CommandRefusedError, NotFoundError, PluginError
from rocketmq_kubectl.run import Report
from rocketmq_kubectl.verbs import change
from rocketmq_kubectl.verbs.change import Snapshot
from rocketmq_kubectl.verbs.follow_job import POLL, Follower, mapping
from rocketmq_resources import names

INSTANTIATE: Final = "cronjob.kubernetes.io/instantiate"
MAX_NAME: Final = 61
"""Of a Job: the host name of its pod has two characters more."""
STATUS_SECONDS: Final = 10.0
"""Seconds after the Job's end until its result has to be in the status."""


class DifferentError(PluginError):
    """Replicas have different bytes; the exit code is 1."""


class NotVerifiedError(PluginError):
    """The result is unknown."""

    exit_code = 3


class LastVerification(msgspec.Struct, frozen=True, rename="camel"):
    """status.verification."""

    last_time: str | None = None
    result: str | None = None
    message: str | None = None
    aligned_up_to: int | None = None
    epoch: int | None = None
    findings: int | None = None
    details: tuple[str, ...] = ()
    bytes: int | None = None
    duration_seconds: int | None = None
    full: bool | None = None
    job: str | None = None
    last_full_time: str | None = None
    oldest_read_time: str | None = None
    oldest_read_offset: int | None = None


async def last(session: Session, name: str) -> Report:
    """Show the last result from the status."""
    body = await session.group_body(name)
    return _report(session, change.snapshot(body), _last(body))


async def now(session: Session, name: str, *, full: bool, follow: bool, seconds: float | None) -> Report:
    """Create a Job from the group's CronJob; with `follow`, wait for its end, at most `seconds` (None: as long as the
    Job may take)."""
    seen = change.snapshot(await session.group_body(name))
    wanted = seen.group.spec.verification
    if wanted is None:
        raise CommandRefusedError(
            f"no verification is configured for {name}: set spec.verification.schedule (the job is made from it)"
        )
    change.require_active(seen, "verify --now")
    if seen.group.spec.hibernated:
        raise CommandRefusedError(f"{name} is hibernated, so no replica answers: kubectl rocketmq wake {name} first")
    cron_job = names.verification(name)
    base = f"/apis/batch/v1/namespaces/{session.namespace}"
    try:
        body = await session.kube.get(f"{base}/cronjobs/{cron_job}")
    except NotFoundError as error:
        raise CommandRefusedError(
            f"verification of {name} is configured, but its CronJob {cron_job} does not exist (yet):"
            f" see kubectl rocketmq status {name}"
        ) from error
    made = await session.kube.create(f"{base}/jobs", _job(body, cron_job, session, full=full))
    job = str(mapping(made, "metadata").get("name"))
    if not follow:
        text = f"Job {job} compares the logs of {name}: kubectl -n {session.namespace} logs -f job/{job}"
        return change.done(seen, text, job=job)
    session.progress(f"Job {job} compares the logs of {name}")
    patience = wanted.timeout_seconds + 60.0 if seconds is None else seconds
    follower = Follower(session, name, job)
    failed = await follower.end(f"{base}/jobs/{job}", patience)
    return await _result(session, name, job, failed, follower.trouble, full=full)


async def _result(session: Session, name: str, job: str, failed: str | None, trouble: str, *, full: bool) -> Report:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + STATUS_SECONDS
    while True:
        body = await session.group_body(name)
        found = _last(body)
        if found.job == job:
            return _report(session, change.snapshot(body), found, full=full)
        if loop.time() >= deadline:
            why = f"it failed: {failed}" if failed else "it ended"
            why += f"; {trouble}" if trouble else ""
            raise NotVerifiedError(
                f"Job {job} has not written its result; {why}; see kubectl -n {session.namespace} logs job/{job}"
            )
        await asyncio.sleep(POLL)


def _report(session: Session, seen: Snapshot, found: LastVerification, *, full: bool = False) -> Report:
    """`full`: a comparison of everything was asked for."""
    name = seen.group.name
    document = {
        "namespace": seen.group.namespace,
        "name": name,
        "configured": seen.group.spec.verification is not None,
        "verification": msgspec.to_builtins(found) if found.result else None,
    }
    if not found.result:
        problem = NotVerifiedError(f"the logs of {name} were never compared: kubectl rocketmq verify {name} --now")
        return Report("", document, (problem,))
    now, ago = session.now(), output.age(found.last_time, session.now())
    full_ago, old = output.age(found.last_full_time, now), output.age(found.oldest_read_time, now)
    aligned = seen.status.condition("LogsAligned")
    table = output.facts(
        [
            ("Group", f"{seen.group.namespace}/{name}"),
            ("Result", found.result),
            ("Message", found.message),
            ("Aligned up to", _up_to(found)),
            ("Differences", found.findings or None),
            ("Compared", _compared(found)),
            ("When", f"{found.last_time} ({ago} ago)" if ago else found.last_time),
            ("Last in full", f"{found.last_full_time} ({full_ago} ago)" if full_ago else "never"),
            (
                "Oldest read",
                f"{found.oldest_read_time} ({old} ago), offset {found.oldest_read_offset}" if old else None,
            ),
            ("Job", found.job),
            ("LogsAligned", None if aligned is None else f"{aligned.status} ({aligned.reason})"),
        ]
    )
    details = "".join(f"  {output.cell(line)}\n" for line in found.details)
    return Report(table + (f"Findings:\n{details}" if details else ""), document, _problems(name, found, full=full))


def _problems(name: str, found: LastVerification, *, full: bool) -> tuple[PluginError, ...]:
    match found.result:
        case "Aligned" if full and found.full is False:
            return (
                NotVerifiedError(
                    f"not everything of {name} was compared, because the time was up; what was is aligned: repeat it,"
                    " or raise spec.verification.timeoutSeconds"
                ),
            )
        case "Aligned":
            return ()
        case "Different":
            return (
                DifferentError(
                    f"the replicas of {name} have different messages: rebuild one with kubectl rocketmq rebuild"
                ),
            )
        case _:
            return (
                NotVerifiedError(f"the logs of {name} could not be compared: {found.message or 'no reason is given'}"),
            )


def _compared(found: LastVerification) -> str | None:
    if found.bytes is None:
        return None
    return f"{output.size(found.bytes)} in {output.duration(found.duration_seconds or 0)}"


def _up_to(found: LastVerification) -> str | None:
    if found.aligned_up_to is None:
        return None
    return f"offset {found.aligned_up_to}" + ("" if found.epoch is None else f" at epoch {found.epoch}")


def _last(body: Mapping[str, object]) -> LastVerification:
    try:
        return msgspec.convert(mapping(mapping(body, "status"), "verification"), LastVerification)
    except msgspec.ValidationError as error:
        raise NotVerifiedError(f"this plugin cannot read status.verification: {error}") from error


def _job(cron_job: Mapping[str, object], cron_name: str, session: Session, *, full: bool) -> Mapping[str, object]:
    """Like `kubectl create job --from=cronjob/...`: owned by the CronJob, so that it is deleted with it."""
    template = mapping(mapping(cron_job, "spec"), "jobTemplate")
    metadata = mapping(template, "metadata")
    suffix = session.now().strftime("-%m%d%H%M%S")
    spec = template.get("spec")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": cron_name[: MAX_NAME - len(suffix)] + suffix,
            "labels": metadata.get("labels") or {},
            "annotations": {**mapping(metadata, "annotations"), INSTANTIATE: "manual"},
            "ownerReferences": [
                {
                    "apiVersion": "batch/v1",
                    "kind": "CronJob",
                    "name": cron_name,
                    "uid": mapping(cron_job, "metadata").get("uid"),
                }
            ],
        },
        "spec": _of_everything(spec) if full and isinstance(spec, Mapping) else spec,
    }


def _of_everything(spec: Mapping[str, object]) -> Mapping[str, object]:
    """The Job's spec with the switch for a full comparison."""
    template = mapping(spec, "template")
    pod = mapping(template, "spec")
    containers = pod.get("containers")
    changed = [
        {**container, "env": [*_others(container.get("env")), {"name": names.ENV_FULL, "value": "true"}]}
        for container in (containers if isinstance(containers, list) else [])
        if isinstance(container, Mapping)
    ]
    return {**spec, "template": {**template, "spec": {**pod, "containers": changed}}}


def _others(env: object) -> list[object]:
    return (
        [entry for entry in env if isinstance(entry, Mapping) and entry.get("name") != names.ENV_FULL]
        if isinstance(env, list)
        else []
    )
