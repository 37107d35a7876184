"""The plan of a NameServer: its objects. Kubernetes rolls its pods itself, since brokers register all routes again."""

from rocketmq_operator.domain.actions import Event
from rocketmq_operator.domain.conditions import Condition, condition, find, merge, pod_problems
from rocketmq_operator.domain.manifests.name_servers import name_server_objects
from rocketmq_operator.domain.observed import ObservedNameServer
from rocketmq_operator.domain.plan.config_size import config_too_large
from rocketmq_operator.domain.plan.step import UNSETTLED, Blocked, Plan, PlanSettings, ask_for_pods
from rocketmq_resources import names
from rocketmq_resources.decoding import Json


def plan_name_server(observed: ObservedNameServer, settings: PlanSettings, now: float) -> Plan:
    """What to do for one name server now. `now`: seconds since 1970."""
    server = observed.name_server
    if server.metadata.deleting:
        return Plan()
    objects = () if server.spec.paused else name_server_objects(server, settings.images, settings.access)
    refused = config_too_large(objects).blocked
    status = _status(observed, refused, now)
    events = phase_events(server.status, status)
    requeue = ask_for_pods(observed.stateful_set, observed.pods).requeue
    return Plan(objects=objects if refused is None else (), status=status, events=events, requeue=requeue)


def phase_events(before: Json, after: Json) -> tuple[Event, ...]:
    """Events for a new phase and for a new problem."""
    events = []
    if after.get("phase") not in (before.get("phase"), "Degraded"):  # the condition Degraded has an Event of its own
        events.append(Event(str(after.get("phase")), str(after.get("phaseReason") or after.get("phase"))))
    was, is_ = find(before.get("conditions"), "Degraded"), find(after.get("conditions"), "Degraded")
    if is_.get("status") == "True" and was.get("reason") != is_.get("reason"):
        events.append(Event(str(is_.get("reason")), str(is_.get("message")), warning=True))
    return tuple(events)


def _ready(phase: str, reason: str, refused: Blocked | None, *, ready: int, wanted: int, paused: bool) -> Condition:
    """True only when the newest generation was carried out: scripts wait for it after an edit."""
    count = f"{ready} of {wanted} ready"
    if refused is not None:
        return condition("Ready", holds=False, reason=refused.reason, message=refused.message)
    if ready < wanted:
        return condition("Ready", holds=False, reason="PodsNotReady", message=count)
    if paused:
        message = "spec.paused is set: what this generation changes waits until it is unset"
        return condition("Ready", holds=None, reason="Paused", message=message)
    if phase != "Running":
        return condition("Ready", holds=False, reason=phase, message=reason)
    return condition("Ready", holds=True, reason="AllReady", message=count)


def _degraded(phase: str, reason: str, refused: Blocked | None, troubled: str) -> Condition:
    if refused is not None:
        return condition("Degraded", holds=True, reason=refused.reason, message=refused.message)
    if troubled:
        return condition("Degraded", holds=True, reason="PodsFailing", message=troubled)
    if phase == "Degraded":
        return condition("Degraded", holds=True, reason="PodsNotReady", message=reason)
    return condition("Degraded", holds=False, reason="AsWanted")


def _status(observed: ObservedNameServer, refused: Blocked | None, now: float) -> Json:
    server, wanted = observed.name_server, observed.name_server.spec.replicas
    ready = [pod for pod in observed.pods if pod.ready and not pod.deleting]
    update = "" if observed.stateful_set is None else observed.stateful_set.update_revision
    old = [pod.name for pod in observed.pods if update and pod.revision != update]
    troubled = pod_problems(observed.pods, observed.stateful_set, now)
    settled = observed.stateful_set is not None and observed.stateful_set.settled
    replicas = 0 if observed.stateful_set is None else observed.stateful_set.replicas
    if refused is not None:
        phase, reason = "Degraded", refused.message
    elif len(ready) >= wanted == replicas and settled and not old and len(observed.pods) == wanted:
        phase, reason = "Running", ""
    elif old:
        phase, reason = "Updating", f"{', '.join(old)} have to be replaced"
    elif observed.stateful_set is not None and max(len(observed.pods), replicas) > wanted:
        phase, reason = "Scaling", f"{max(len(observed.pods), replicas)} pods, {wanted} wanted"
    elif server.status.get("phase") in (None, "Pending", "Creating"):
        phase, reason = "Creating", f"{len(ready)} of {wanted} ready"
    elif not settled or server.status.get("phase") == "Updating":
        phase, reason = "Updating", f"{len(ready)} of {wanted} ready" if settled else UNSETTLED
    else:
        phase, reason = "Degraded", f"{len(ready)} of {wanted} ready"
    moving = phase in ("Creating", "Updating", "Scaling")
    conditions = (
        _ready(phase, reason, refused, ready=len(ready), wanted=wanted, paused=server.spec.paused),
        condition(
            "Available",
            holds=bool(ready),
            reason="Serving" if ready else "NoneReady",
            message=f"{len(ready)} answer" if ready else "no name server answers",
        ),
        condition(
            "Progressing",
            holds=moving,
            reason=phase if moving else "Complete" if refused is None else refused.reason,
            message=reason if moving or refused is not None else "",
        ),
        condition("Paused", holds=server.spec.paused, reason="Paused" if server.spec.paused else "NotPaused"),
        _degraded(phase, reason, refused, troubled),
    )
    return {
        "observedGeneration": server.metadata.generation,
        "phase": phase,
        "phaseReason": reason,
        "replicas": len(observed.pods),
        "readyReplicas": len(ready),
        "ready": f"{len(ready)}/{wanted}",
        "selector": names.selector_text("namesrv", server.name),
        **({} if observed.stateful_set is None else {"image": observed.stateful_set.image}),
        "namesrvAddr": server.namesrv_addr,
        "conditions": merge(
            server.status.get("conditions"), conditions, generation=server.metadata.generation, now=now
        ),
    }
