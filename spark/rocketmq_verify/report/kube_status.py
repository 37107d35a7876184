"""The result of a run in Kubernetes: status.verification of the BrokerGroup, and an Event about it.

Called by `cli` at the end of every run with a configured BrokerGroup, even a failed one: otherwise the last good result
would stay in the status. The operator turns it into the condition LogsAligned and metrics. Written by a field manager
of its own, only this one field, with the rights of the job's ServiceAccount.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import structlog

from rocketmq_verify.domain.findings import Severity
from rocketmq_verify.domain.planning.ages import Aged
from rocketmq_verify.domain.times import rfc3339
from rocketmq_verify.domain.verdict import Result, Verdict

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

log = structlog.get_logger(__name__)

FIELD_MANAGER: Final = "rocketmq-verify"
API: Final = "/apis/rocketmq-ha.io/v1alpha1"
MERGE_PATCH: Final = "application/merge-patch+json"
SHOWN: Final = 10
"""Findings in a status, mismatches first."""
LONGEST: Final = 1000
"""Characters of a text; the API server accepts 1024 in an Event."""
ATTEMPTS: Final = 5
FIRST_WAIT: Final = 1.0
TIMEOUT: Final = 10.0
"""Seconds, of one call."""

_RESULTS: Final = {Result.ALIGNED: "Aligned", Result.MISMATCH: "Different", Result.UNVERIFIED: "Failed"}
_REASONS: Final = {"Aligned": "LogsAligned", "Different": "LogsDiffer", "Failed": "VerificationFailed"}


class KubeStatusError(Exception):
    """The API server did not accept the call; the text has the reason. `temporary`: another attempt may succeed."""

    def __init__(self, message: str, *, temporary: bool = False) -> None:
        super().__init__(message)
        self.temporary = temporary


class Api(Protocol):
    """Calls to the API server; raises `KubeStatusError`."""

    def call(self, method: str, path: str, body: Mapping[str, object] | None) -> Mapping[str, object]:
        """The object in the answer. PATCH is a merge patch."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What is published of a run."""

    result: str
    """Aligned, Different or Failed."""
    message: str
    """One sentence."""
    full: bool = False
    aligned_up_to: int | None = None
    epoch: int | None = None
    findings: int | None = None
    """Mismatches; None: nothing was compared."""
    details: tuple[str, ...] = ()
    bytes: int | None = None
    """Compared, of the log."""
    oldest: Aged | None = None
    """What was not read for the longest time, of what was ever read; None: unknown."""


def outcome_of(
    verdict: Verdict, *, oldest: Aged | None = None, unseen: Sequence[str] = (), history_error: str = ""
) -> Outcome:
    """Of a run with a verdict.

    Args:
        oldest: what was not read for the longest time.
        unseen: what it did not look at (`left_out`).
        history_error: why it is not kept, so that the next run reads as much again.
    """
    message = verdict.summary + (f"; not looked at: {', '.join(unseen)}" if unseen else "")
    shown = [finding for finding in verdict.findings if finding.severity is not Severity.INFORMATION]
    return Outcome(
        result=_RESULTS[verdict.result],
        message=message + (f"; not kept: {history_error}" if history_error else ""),
        full=verdict.full,
        aligned_up_to=verdict.aligned_up_to,
        epoch=verdict.epoch,
        findings=sum(1 for finding in shown if finding.severity is Severity.MISMATCH),
        details=tuple(finding.detail for finding in shown[:SHOWN]),
        bytes=verdict.compared_bytes,
        oldest=oldest,
    )


def failure(message: str, *, full: bool) -> Outcome:
    """Of a run without a verdict."""
    return Outcome(result="Failed", message=message, full=full)


def status_of(outcome: Outcome, *, ended: float, seconds: float, job: str) -> dict[str, object]:
    """status.verification: `ended` in seconds since 1970. Unknown values are removed. The time of the last full
    run stays unless this run was one, and so does that of the oldest read: its age grows while runs fail."""
    when = rfc3339(ended)
    status: dict[str, object] = {
        "lastTime": when,
        "result": outcome.result,
        "message": _short(outcome.message),
        "alignedUpTo": outcome.aligned_up_to,
        "epoch": outcome.epoch,
        "findings": outcome.findings,
        "details": [_short(detail) for detail in outcome.details] or None,
        "bytes": outcome.bytes,
        "durationSeconds": round(seconds),
        "full": outcome.full,
        "job": job or None,
    }
    if outcome.full and outcome.result != "Failed":
        status["lastFullTime"] = when
    if outcome.oldest is not None:
        status["oldestReadTime"] = rfc3339(outcome.oldest.since_ms / 1000)
        status["oldestReadOffset"] = outcome.oldest.start
    return status


def event_of(group: Mapping[str, object], outcome: Outcome, *, ended: float, instance: str) -> dict[str, object]:
    """The Event about the BrokerGroup `group`."""
    metadata = group.get("metadata")
    assert isinstance(metadata, Mapping), "the API server sends metadata with every object"
    name, namespace = str(metadata.get("name")), str(metadata.get("namespace"))
    when, reason = rfc3339(ended), _REASONS[outcome.result]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.verify.{int(ended * 1000):x}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": "rocketmq-ha.io/v1alpha1",
            "kind": "BrokerGroup",
            "namespace": namespace,
            "name": name,
            "uid": metadata.get("uid"),
        },
        "reason": reason,
        "message": _short(outcome.message),
        "type": "Normal" if outcome.result == "Aligned" else "Warning",
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "reportingInstance": instance,
        "action": reason,
        "eventTime": when.replace("Z", ".000000Z"),
        "firstTimestamp": when,
        "lastTimestamp": when,
        "count": 1,
    }


def publish(
    namespace: str,
    group: str,
    outcome: Outcome,
    *,
    seconds: float,
    api: Api | None = None,
    environ: Mapping[str, str] = os.environ,
    wall: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Write status and Event of the BrokerGroup; returns whether the status was written. Errors are logged and never
    raised: the run's own result must not be lost because of them.

    Args:
        seconds: how long the run took.
        environ: JOB_NAME and POD_NAME name the writer, if set.
    """
    ended = wall()
    status = status_of(outcome, ended=ended, seconds=seconds, job=environ.get("JOB_NAME", ""))
    path = f"{API}/namespaces/{namespace}/brokergroups/{group}"
    written = False
    try:
        calls = api or in_cluster()
        change: Mapping[str, object] = {"status": {"verification": status}}
        body = _call_with_retries(calls, "PATCH", f"{path}/status?fieldManager={FIELD_MANAGER}", change, sleep)
        written = True
        event = event_of(body, outcome, ended=ended, instance=environ.get("POD_NAME") or "rocketmq-verify")
        _call_with_retries(calls, "POST", f"/api/v1/namespaces/{namespace}/events", event, sleep)
    except KubeStatusError as error:
        log.warning(
            "status of the BrokerGroup not written" if not written else "Event not created",
            group=f"{namespace}/{group}",
            result=outcome.result,
            error=str(error),
            hint="check Role and RoleBinding of the job's ServiceAccount, and that the API server can be reached",
        )
    return written


def in_cluster() -> Api:
    """A client with the pod's ServiceAccount, else the user's kubeconfig.

    Raises:
        KubeStatusError: both are missing.
    """
    from kubernetes import client, config  # noqa: PLC0415 - takes a while to load, and only runs on Kubernetes need it
    from urllib3 import Retry  # noqa: PLC0415

    configuration = client.Configuration()
    try:
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            config.load_kube_config(client_configuration=configuration)
    except (config.ConfigException, OSError) as error:
        raise KubeStatusError(f"neither a service account nor a kubeconfig: {error}") from error
    configuration.retries = Retry(0)
    return _Official(client.ApiClient(configuration))


class _Official:
    """The official client."""

    def __init__(self, client: "ApiClient") -> None:
        self._client = client

    def call(self, method: str, path: str, body: Mapping[str, object] | None) -> Mapping[str, object]:
        from kubernetes.client.exceptions import ApiException  # noqa: PLC0415
        from urllib3.exceptions import HTTPError  # noqa: PLC0415

        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = MERGE_PATCH if method == "PATCH" else "application/json"
        request = self._client.param_serialize(
            method, path, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        try:
            answer = self._client.call_api(*request[:4], _request_timeout=(TIMEOUT, TIMEOUT)).response
            status, data = int(answer.status), bytes(answer.read())
        except (HTTPError, ApiException, OSError) as error:
            raise KubeStatusError(f"{method} {path}: {error}", temporary=True) from error
        if status >= 400:
            text = data.decode(errors="replace")[:LONGEST]
            raise KubeStatusError(f"{method} {path}: {status} {text}", temporary=status in (409, 429) or status >= 500)
        try:
            return msgspec.json.decode(data, type=dict[str, object])
        except msgspec.DecodeError as error:
            raise KubeStatusError(f"{method} {path}: the answer is not an object: {error}", temporary=True) from error


def _call_with_retries(
    api: Api, method: str, path: str, body: Mapping[str, object], sleep: Callable[[float], None]
) -> Mapping[str, object]:
    wait = FIRST_WAIT
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return api.call(method, path, body)
        except KubeStatusError as error:
            if not error.temporary or attempt == ATTEMPTS:
                raise
            log.info("call failed, trying again", path=path, seconds=wait, error=str(error))
        sleep(wait)
        wait *= 2
    raise AssertionError("the last attempt returns or raises")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
