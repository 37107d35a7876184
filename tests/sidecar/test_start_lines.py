"""What a sidecar says as it starts."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rocketmq_settings.replica import Durability
from rocketmq_sidecar.app import SidecarApp
from rocketmq_sidecar.control.agent import Agent
from rocketmq_sidecar.settings import SidecarSettings


@pytest.mark.parametrize(
    ("durability", "all_ack", "secret", "warns"),
    [
        ("strict", False, False, True),
        ("strict", False, True, False),
        ("relaxed", True, False, True),
        ("relaxed", False, False, False),
    ],
)
async def test_who_depends_on_acknowledgements_that_can_be_forged_is_warned_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: Durability, *, all_ack: bool, secret: bool, warns: bool
) -> None:
    async def start(*_: object) -> None:
        """Nothing of the replica itself."""

    monkeypatch.setattr(Agent, "start", start)
    file = tmp_path / "secret"
    file.write_bytes(b"of sixteen bytes")
    file.chmod(0o600)
    app = SidecarApp(
        SidecarSettings(
            controller_addr="127.0.0.1:1",
            store_path_root_dir=str(tmp_path / "store"),
            durability=durability,
            all_ack_in_sync_state_set=all_ack,
            ha_replication_secret_file=str(file) if secret else "",
        )
    )
    with capture_logs() as logs:
        await app._start_replica()
    warnings = [str(entry["event"]) for entry in logs if entry["log_level"] == "warning"]
    assert ["set haReplicationSecretFile" in warning for warning in warnings] == [True] * warns
