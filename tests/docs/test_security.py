"""docs/security.md: the tests that it names exist."""

import re

from tests.paths import ROOT


def test_each_finding_has_a_test_or_is_open() -> None:
    text = (ROOT / "docs" / "security.md").read_text().partition("## What strangers could do")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+) \| (.+) \| (.+) \|$", text, re.MULTILINE)[1:]
    assert len(rows) > 30
    for finding, _, test in rows:
        for path, name in re.findall(r"`(tests/\S+)::(\w+)`", test):
            assert re.search(rf"def {name}\b", (ROOT / path).read_text()), f"{finding}: {path}::{name}"
        assert test == "open" or "::" in test, finding
