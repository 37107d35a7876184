"""What users of operators like ours reported, tried here (docs/field-reports.md names the reports)."""

from rocketmq_operator.domain.observed import Pod
from rocketmq_operator.kubernetes.parse import pod_of


def pod(
    *containers: tuple[str, str], image: str = "rocketmq-ha/broker:1", init: tuple[tuple[str, str], ...] = ()
) -> Pod:
    """A pod with containers by name and state: `running`, or a reason to wait."""

    def status(name: str, state: str) -> dict[str, object]:
        return {"name": name, "state": {"running": {}} if state == "running" else {"waiting": {"reason": state}}}

    found = pod_of(
        {
            "metadata": {"name": "g-0", "labels": {"controller-revision-hash": "g-1"}},
            "spec": {"containers": [{"name": name, "image": image} for name, _ in containers]},
            "status": {
                "containerStatuses": [status(*container) for container in containers],
                "initContainerStatuses": [status(*container) for container in init],
            },
        }
    )
    assert found is not None
    return found


def test_an_image_that_a_webhook_has_rewritten_makes_no_pod_outdated() -> None:
    """What a pod was made from is its revision."""
    rewritten = "mirror.example/rocketmq-ha/broker:1@sha256:" + "0" * 64
    assert pod(("broker", "running"), image=rewritten) == pod(("broker", "running"))


def test_a_container_that_a_webhook_has_put_first_is_not_the_broker() -> None:
    assert not pod(("istio-proxy", "running"), ("broker", "PodInitializing")).running
    assert pod(("istio-proxy", "running"), ("broker", "running")).running


def test_a_container_that_runs_before_the_others_and_fails_is_named() -> None:
    waiting = ("broker", "PodInitializing")
    assert pod(waiting, init=(("istio-init", "ImagePullBackOff"),)).problem == "ImagePullBackOff (istio-init)"
    assert pod(waiting, init=(("istio-init", "PodInitializing"),)).problem == ""
