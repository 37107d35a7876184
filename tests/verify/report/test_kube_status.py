"""What is written to the BrokerGroup after a run, and what becomes of an API server that refuses."""

from collections.abc import Mapping

import msgspec
import pytest
from structlog.testing import capture_logs

from rocketmq_formats.soundness.places import Extent
from rocketmq_verify.domain.findings import Finding, Kind
from rocketmq_verify.domain.model import ReplicaName
from rocketmq_verify.domain.planning.ages import Aged
from rocketmq_verify.domain.verdict import Result, Verdict, in_order, report
from rocketmq_verify.report import kube_status
from rocketmq_verify.report.kube_status import KubeStatusError, Outcome, failure, outcome_of, publish

NOW = 1_767_268_800.0  # 2026-01-01T12:00:00Z
STATUS = "/apis/rocketmq-ha.io/v1alpha1/namespaces/shop/brokergroups/orders/status?fieldManager=rocketmq-verify"
EVENTS = "/api/v1/namespaces/shop/events"
GROUP = {"metadata": {"name": "orders", "namespace": "shop", "uid": "u1"}}
ALIGNED = Outcome(
    result="Aligned", message="3 replicas aligned", full=True, aligned_up_to=9, epoch=2, findings=0, bytes=9
)


class FakeApi:
    """Answers from a list of errors, then with the group."""

    def __init__(self, *errors: KubeStatusError) -> None:
        self.calls: list[tuple[str, str, Mapping[str, object]]] = []
        self._errors = list(errors)

    def call(self, method: str, path: str, body: Mapping[str, object] | None) -> Mapping[str, object]:
        assert body is not None
        self.calls.append((method, path, body))
        if self._errors:
            raise self._errors.pop(0)
        return GROUP


def published(api: FakeApi, outcome: Outcome, waits: list[float] | None = None) -> bool:
    environ = {"JOB_NAME": "orders-verify-1", "POD_NAME": "orders-verify-1-0-x"}
    sleep = [].append if waits is None else waits.append
    return publish("shop", "orders", outcome, seconds=12.4, api=api, environ=environ, wall=lambda: NOW, sleep=sleep)


def verdict_with(result: Result, *findings: Finding) -> Verdict:
    return Verdict(
        group="orders",
        result=result,
        exit_code=0,
        summary="in one sentence",
        aligned_up_to=100,
        epoch=3,
        confirm_offset=200,
        full=False,
        compared_bytes=100,
        read_bytes=300,
        new_bytes=100,
        old_bytes=0,
        chunks=1,
        moved=(),
        counts={},
        replicas=(),
        findings=tuple(report(one) for one in in_order(findings)),
    )


def finding(kind: Kind, detail: str, at: int = 0) -> Finding:
    return Finding(kind=kind, replicas=(ReplicaName("orders-2"),), extent=Extent(at, at + 1), detail=detail)


def test_status_and_event() -> None:
    api = FakeApi()
    assert published(api, ALIGNED)
    (patch, event) = api.calls
    assert patch == (
        "PATCH",
        STATUS,
        {
            "status": {
                "verification": {
                    "lastTime": "2026-01-01T12:00:00Z",
                    "result": "Aligned",
                    "message": "3 replicas aligned",
                    "alignedUpTo": 9,
                    "epoch": 2,
                    "findings": 0,
                    "details": None,
                    "bytes": 9,
                    "durationSeconds": 12,
                    "full": True,
                    "job": "orders-verify-1",
                    "lastFullTime": "2026-01-01T12:00:00Z",
                }
            }
        },
    )
    assert event[:2] == ("POST", EVENTS)
    body = event[2]
    assert (body["reason"], body["type"], body["message"]) == ("LogsAligned", "Normal", "3 replicas aligned")
    involved = body["involvedObject"]
    assert isinstance(involved, dict)
    assert (involved["kind"], involved["name"], involved["uid"]) == ("BrokerGroup", "orders", "u1")


@pytest.mark.parametrize(
    ("result", "word"), [(Result.ALIGNED, "Aligned"), (Result.MISMATCH, "Different"), (Result.UNVERIFIED, "Failed")]
)
def test_words_of_a_verdict(result: Result, word: str) -> None:
    assert outcome_of(verdict_with(result)).result == word


def test_a_history_that_is_full_is_reported() -> None:
    """The run still counts, but each later run reads as much as all before."""
    outcome = outcome_of(verdict_with(Result.ALIGNED), history_error="/history: No space left on device")
    assert outcome.result == "Aligned"
    assert outcome.message == "in one sentence; not kept: /history: No space left on device"


def test_what_was_not_looked_at_is_in_the_message() -> None:
    outcome = outcome_of(verdict_with(Result.ALIGNED), unseen=("the structure of the log", "consume queues"))
    assert outcome.message == "in one sentence; not looked at: the structure of the log, consume queues"


def test_mismatches_are_counted_and_come_first_and_information_is_left_out() -> None:
    found = [finding(Kind.CORRUPT_RECORD, f"record {number}", number) for number in range(30)]
    noise = [finding(Kind.STALE_TAIL, "stale"), finding(Kind.UNREACHABLE, "not heard")]
    outcome = outcome_of(verdict_with(Result.MISMATCH, *noise, *found))
    assert outcome.findings == 30
    assert outcome.details == tuple(f"record {number}" for number in range(10))


def test_of_a_failed_run_nothing_of_the_last_one_stays_but_when_all_was_compared() -> None:
    api = FakeApi()
    assert published(api, failure("Spark did not start", full=True))
    status = msgspec.to_builtins(api.calls[0][2])["status"]["verification"]
    assert status["result"] == "Failed"
    assert [key for key, value in status.items() if value is None] == [
        "alignedUpTo",
        "epoch",
        "findings",
        "details",
        "bytes",
    ]
    assert "lastFullTime" not in status
    assert (api.calls[1][2]["reason"], api.calls[1][2]["type"]) == ("VerificationFailed", "Warning")


def test_how_old_the_oldest_knowledge_is_stays_until_another_run_knows_better() -> None:
    api = FakeApi()
    oldest = Aged(4096, 8192, 1_767_268_800_000)
    assert published(api, outcome_of(verdict_with(Result.ALIGNED), oldest=oldest))
    status = msgspec.to_builtins(api.calls[0][2])["status"]["verification"]
    assert (status["oldestReadTime"], status["oldestReadOffset"]) == ("2026-01-01T12:00:00Z", 4096)
    failed = FakeApi()
    assert published(failed, failure("Spark did not start", full=False))
    assert "oldestReadTime" not in msgspec.to_builtins(failed.calls[0][2])["status"]["verification"]


def test_it_insists_while_that_makes_sense() -> None:
    waits: list[float] = []
    api = FakeApi(*(KubeStatusError("503", temporary=True) for _ in range(3)))
    assert published(api, ALIGNED, waits)
    assert waits == [1.0, 2.0, 4.0]
    assert [path for _, path, _ in api.calls] == [STATUS] * 4 + [EVENTS]


@pytest.mark.parametrize(
    ("api", "written", "calls"),
    [
        (FakeApi(KubeStatusError("403 forbidden")), False, 1),
        (FakeApi(*(KubeStatusError("503", temporary=True) for _ in range(9))), False, kube_status.ATTEMPTS),
    ],
)
def test_a_refusal_is_logged_and_never_raised(api: FakeApi, written: bool, calls: int) -> None:
    with capture_logs() as lines:
        assert published(api, ALIGNED) is written
    assert len(api.calls) == calls
    assert lines[-1]["event"] == "status of the BrokerGroup not written"
    assert lines[-1]["group"] == "shop/orders"


def test_texts_are_cut_to_what_the_api_server_takes() -> None:
    api = FakeApi()
    published(api, failure("x" * 5000, full=False))
    assert all(len(str(call[2].get("message", ""))) <= 1024 for call in api.calls)
    assert "x..." in str(api.calls[0][2])
