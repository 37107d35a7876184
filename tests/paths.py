"""Where tests find the repository's files."""

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
GOLDEN_FILES: Final = ROOT / "tests" / "golden"
"""Bytes and texts recorded from RocketMQ and its clients."""
