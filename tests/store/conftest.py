"""An empty store for each test."""

from pathlib import Path

import pytest

from rocketmq_store.message_store import MessageStore
from tests.store.kit import opened


@pytest.fixture
def store(tmp_path: Path) -> MessageStore:
    return opened(tmp_path)[0]
