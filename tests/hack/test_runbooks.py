"""The log lines that docs/failure-modes.md quotes exist in the programs: people on call search for them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.paths import ROOT

PRODUCT = ("broker", "broker_sidecar", "controller_core", "libs", "nameserver", "operator", "spark")
QUOTE = re.compile(r"`([a-z][A-Za-z':,; ]+)`")
LEAST_WORDS = 3
PLACEHOLDER = re.compile(r"\bN\b")
"""Stands for a number."""


def texts(path: Path) -> Iterator[str]:
    """The strings of a module; formatted values are left out."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in node.values)


def quoted() -> set[str]:
    page = (ROOT / "docs" / "failure-modes.md").read_text(encoding="utf-8")
    return {quote for quote in QUOTE.findall(page) if len(quote.split()) >= LEAST_WORDS and "kubectl" not in quote}


def test_quoted_log_lines_exist() -> None:
    written = "\n".join(text for folder in PRODUCT for path in (ROOT / folder).rglob("*.py") for text in texts(path))
    assert len(quoted()) > 50
    missing = {quote for quote in quoted() if any(part not in written for part in PLACEHOLDER.split(quote))}
    assert sorted(missing) == []
