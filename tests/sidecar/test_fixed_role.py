"""The settings of a sidecar without controllers."""

import pytest

from rocketmq_runtime.config.settings import SettingsError, build_settings
from rocketmq_sidecar.domain.replication.confirm import AckRule
from rocketmq_sidecar.settings import SidecarSettings

ALONE = {"enableControllerMode": "false", "brokerName": "a"}


def settings(**keys: str) -> SidecarSettings:
    return build_settings(SidecarSettings, {**ALONE, **keys}).settings


def test_it_needs_no_controllers() -> None:
    assert settings().options.fixed_id == 0
    assert settings(brokerId="3", brokerRole="SLAVE").options.fixed_id == 3
    controlled = settings(enableControllerMode="true", controllerAddr="a:1", brokerId="3", brokerRole="SYNC_MASTER")
    assert controlled.options.fixed_id is None
    with pytest.raises(SettingsError, match="controllerAddr is not set"):
        settings(enableControllerMode="true")


@pytest.mark.parametrize(
    ("broker_id", "role"), [("0", "SLAVE"), ("-1", "SLAVE"), ("1", "ASYNC_MASTER"), ("2", "SYNC_MASTER")]
)
def test_the_role_fits_the_id(broker_id: str, role: str) -> None:
    with pytest.raises(SettingsError, match=f"brokerId={broker_id} with brokerRole={role}"):
        settings(brokerId=broker_id, brokerRole=role)


def test_an_official_broker_without_controllers_has_no_sidecar() -> None:
    with pytest.raises(SettingsError, match="brokerEngine=apache"):
        settings(brokerEngine="apache")


def test_whose_copies_a_message_needs() -> None:
    two = {"durability": "relaxed", "inSyncReplicas": "2", "minInSyncReplicas": "2", "allAckInSyncStateSet": "true"}
    alone = settings(**two, brokerRole="ASYNC_MASTER")
    assert alone.ack_rule == AckRule(
        strict=False, all_ack_in_sync_state_set=False, in_sync_replicas=1, min_in_sync_replicas=1
    )
    assert not alone.acknowledges_what_all_have
    both = settings(**two, brokerRole="SYNC_MASTER")
    assert both.ack_rule == AckRule(
        strict=False, all_ack_in_sync_state_set=True, in_sync_replicas=2, min_in_sync_replicas=2
    )
    assert both.acknowledges_what_all_have
    assert settings(brokerRole="ASYNC_MASTER").ack_rule.strict, "strict counts more than the role"
