"""The plan of a NameServer: its objects. Kubernetes rolls them by itself, since name servers know nothing that
brokers do not tell them again."""

from rocketmq_operator.domain import names
from rocketmq_operator.domain.actions import Notice
from rocketmq_operator.domain.conditions import condition, find, merge, troubles
from rocketmq_operator.domain.manifests.name_servers import name_server_objects
from rocketmq_operator.domain.observed import ObservedNameServer
from rocketmq_operator.domain.plan.settings import PlanSettings
from rocketmq_operator.domain.plan.step import Plan
from rocketmq_operator.domain.spec.common import Json


def plan_name_server(world: ObservedNameServer, settings: PlanSettings, now: float) -> Plan:
    """What to do for one name server now. `now`: seconds since 1970."""
    server = world.name_server
    if server.metadata.deleting:
        return Plan()
    status = _status(world, now)
    notices = phase_notice(server.status, status)
    if server.spec.paused:
        return Plan(status=status, notices=notices)
    return Plan(objects=name_server_objects(server, settings.images, settings.access), status=status, notices=notices)


def phase_notice(before: Json, after: Json) -> tuple[Notice, ...]:
    """An Event for another phase, and for what has gone wrong."""
    notices = []
    if after.get("phase") not in (before.get("phase"), "Degraded"):  # of that the condition tells
        notices.append(Notice(str(after.get("phase")), str(after.get("phaseReason") or after.get("phase"))))
    was, is_ = find(before.get("conditions"), "Degraded"), find(after.get("conditions"), "Degraded")
    if is_.get("status") == "True" and was.get("reason") != is_.get("reason"):
        notices.append(Notice(str(is_.get("reason")), str(is_.get("message")), warning=True))
    return tuple(notices)


def _status(world: ObservedNameServer, now: float) -> Json:
    server, wanted = world.name_server, world.name_server.spec.replicas
    ready = [pod for pod in world.pods if pod.ready and not pod.deleting]
    update = "" if world.stateful_set is None else world.stateful_set.update_revision
    old = [pod.name for pod in world.pods if update and pod.revision != update]
    troubled = troubles(world.pods, now)
    settled = world.stateful_set is not None and world.stateful_set.settled
    if len(ready) >= wanted and settled and not old and len(world.pods) == wanted:
        phase, reason = "Running", ""
    elif old:
        phase, reason = "Updating", f"{', '.join(old)} to be replaced"
    elif world.stateful_set is not None and len(world.pods) > wanted:
        phase, reason = "Scaling", f"{len(world.pods)} pods, {wanted} wanted"
    elif server.status.get("phase") in (None, "Pending", "Creating"):
        phase, reason = "Creating", f"{len(ready)} of {wanted} ready"
    elif not settled or server.status.get("phase") == "Updating":
        phase, reason = "Updating", f"{len(ready)} of {wanted} ready"
    else:
        phase, reason = "Degraded", f"{len(ready)} of {wanted} ready"
    conditions = (
        condition(
            "Ready",
            holds=len(ready) >= wanted,
            reason="AllReady" if len(ready) >= wanted else "PodsNotReady",
            message=f"{len(ready)} of {wanted} ready",
        ),
        condition(
            "Available",
            holds=bool(ready),
            reason="Serving" if ready else "NobodyReady",
            message=f"{len(ready)} answer" if ready else "no name server answers",
        ),
        condition(
            "Progressing",
            holds=phase in ("Creating", "Updating", "Scaling"),
            reason="Complete" if phase == "Running" else phase,
            message=reason,
        ),
        condition("Paused", holds=server.spec.paused, reason="Paused" if server.spec.paused else "NotPaused"),
        condition(
            "Degraded",
            holds=bool(troubled) or phase == "Degraded",
            reason="PodsFailing" if troubled else "PodsNotReady" if phase == "Degraded" else "AsWanted",
            message=troubled or (reason if phase == "Degraded" else ""),
        ),
    )
    return {
        "observedGeneration": server.metadata.generation,
        "phase": phase,
        "phaseReason": reason,
        "replicas": len(world.pods),
        "readyReplicas": len(ready),
        "ready": f"{len(ready)}/{wanted}",
        "selector": names.selector_text("namesrv", server.name),
        **({} if world.stateful_set is None else {"image": world.stateful_set.image}),
        "namesrvAddr": server.namesrv_addr,
        "conditions": merge(
            server.status.get("conditions"), conditions, generation=server.metadata.generation, now=now
        ),
    }
