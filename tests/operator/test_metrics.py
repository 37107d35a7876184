"""What /metrics of the operator shows."""

from prometheus_client import generate_latest

from rocketmq_operator.metrics import Group, OperatorMetrics, Resource


def test_reconciles_decisions_and_resources_are_shown() -> None:
    resources = (
        Resource("ControllerCluster", "mq", "main", "Running", ready=True),
        Resource(
            "BrokerGroup", "mq", "a", "Degraded", ready=False, group=Group("C", "broker-a", replicas=3, in_sync=2)
        ),
    )
    metrics = OperatorMetrics(leading=lambda: True, waiting=lambda: 4, resources=lambda: resources)
    metrics.reconciled("BrokerGroup", seconds=0.02, failed=False)
    metrics.reconciled("BrokerGroup", seconds=0.2, failed=True)
    metrics.decided("BrokerGroup", "RollingUpdate")
    lines = {line for line in generate_latest(metrics.registry).decode().splitlines() if not line.startswith("#")}
    place = 'name="a",resource_namespace="mq"'
    assert {
        "rocketmq_operator_leader 1.0",
        "rocketmq_operator_queue_length 4.0",
        'rocketmq_operator_reconciles_total{kind="BrokerGroup",result="done"} 1.0',
        'rocketmq_operator_reconciles_total{kind="BrokerGroup",result="error"} 1.0',
        'rocketmq_operator_reconcile_seconds_bucket{kind="BrokerGroup",le="0.025"} 1.0',
        'rocketmq_operator_decisions_total{kind="BrokerGroup",reason="RollingUpdate"} 1.0',
        'rocketmq_operator_resource_ready{kind="BrokerGroup",name="a",phase="Degraded",resource_namespace="mq"} 0.0',
        f'rocketmq_operator_group_replicas{{broker_set="broker-a",cluster="C",{place}}} 3.0',
        f'rocketmq_operator_group_in_sync_replicas{{broker_set="broker-a",cluster="C",{place}}} 2.0',
    } <= lines
