"""What a controller's parts are wired to."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketmq_controller.app import ControllerApp
from rocketmq_controller.config import LiveConfig
from rocketmq_formats.codes import ResponseCode
from rocketmq_runtime.config.settings import SettingsError
from tests.controller.test_settings import GOOD


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    logger = logging.getLogger()
    before = logger.level
    yield logger
    logger.setLevel(before)


async def test_an_updated_log_level_is_effective_at_once(tmp_path: Path, root: logging.Logger) -> None:
    secret = tmp_path / "secret"
    secret.write_text("0123456789abcdef")
    app = ControllerApp(
        LiveConfig({**GOOD, "controllerRaftSecretFile": str(secret), "configStorePath": str(tmp_path / "kept")}, {})
    )
    root.setLevel("INFO")
    assert (await app.config.update(b"logLevel=debug")).code == ResponseCode.SUCCESS
    assert root.level == logging.DEBUG
    assert (await app.config.update(b"logLevel=error")).code == ResponseCode.SUCCESS
    assert root.level == logging.ERROR
    await app.stop()


async def test_a_raft_secret_is_read_as_every_secret_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`~` is the user's folder, and what is wrong names the key."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "short").write_text("short")
    for name in ("short", "absent"):
        with pytest.raises(SettingsError, match="controllerRaftSecretFile"):
            ControllerApp(LiveConfig({**GOOD, "controllerRaftSecretFile": f"~/{name}"}, {}))
    (tmp_path / "short").write_text(" 0123456789abcdef\n")
    await ControllerApp(LiveConfig({**GOOD, "controllerRaftSecretFile": "~/short"}, {})).stop()
