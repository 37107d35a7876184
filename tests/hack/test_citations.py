"""hack/citations.py: what is refused as a citation, and what is not."""

import pytest

from tests.paths import ROOT
from tests.scripts import load_script

PAGE = "# Page\n## The `log`, [here](#twice)\n## Twice\n## Twice\n```\n# no heading\n```\n"
FILES = ("README.md", "docs/page.md", "libs/rocketmq_one/two/three.py", "libs/rocketmq_one/wire.proto")


citations = load_script(ROOT / "hack" / "citations.py")


def problems(name: str, text: str) -> list[str]:
    texts = {"docs/page.md": PAGE, name: text}
    java = frozenset(("CommitLog.java", "EpochFileCache.java"))
    return list(citations.problems(citations.Tree(texts, citations.places([*FILES, name]), java)))


@pytest.mark.parametrize(
    "text",
    [
        "Source: rocketmq-all-5.3.3: CommitLog.java.",
        "Source: rocketmq-all-5.3.3: CommitLog.java,\nEpochFileCache.java; RIP-44, section Elect Master.",
        "# as in Java (rocketmq-all-5.3.3:\n# CommitLog.java), and so on",
        "Source: Raft, section 5.4.2.",
        "Source: docs/page.md.",
        "see docs/page.md#twice-1 and docs/page.md#the-log-here",
        "`two/three.py`, `three.py`, libs/rocketmq_one/two, rocketmq_one.two.three and libs/rocketmq_one/*.proto",
        "the master's log is the reference: sections of it are compared",
    ],
)
def test_what_can_be_found(text: str) -> None:
    assert problems("tests/test_it.py", text) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("Source: client reference, section 3.", "'reference, section' is no public source"),
        ("electMaster: controller reference 4.2", "'reference 4' is no public source"),
        ("as DESIGN has it", "'DESIGN' is no public source"),
        ("see ../shared/page.md", "'../shared' is no public source"),
        ("Source: ha notes.", "a source in no form of docs/protocol.md"),
        ("Source: rocketmq-all-5.3.3: NoSuch.java.", "rocketmq-5.3.3-classes.txt has no NoSuch.java"),
        ("Source: rocketmq-all-5.3.3: CommitLog.java, NoSuch.java.", "rocketmq-5.3.3-classes.txt has no NoSuch.java"),
        ("Source: rocketmq-all-5.3.3: `CommitLog.java`.", "rocketmq-5.3.3-classes.txt has no such file"),
        ("see docs/gone.md", "there is no docs/gone.md"),
        ("see docs/page.md#no-heading", "there is no docs/page.md#no-heading"),
        ("see `two/gone.py`", "there is no two/gone.py"),
        ("see rocketmq_one.gone", "there is no rocketmq_one.gone"),
        ("see tests/gone", "there is no tests/gone"),
    ],
)
def test_what_cannot_be_found(text: str, problem: str) -> None:
    found = problems("tests/test_it.py", f'"""First line.\n\n{text}\n"""\n')
    assert any(one.startswith("tests/test_it.py:3: ") and problem in one for one in found), found


@pytest.mark.parametrize("link", ["docs/gone.md", "docs/page.md#gone", "#gone", "page.md"])
def test_a_link_that_leads_nowhere(link: str) -> None:
    assert f"README.md:1: the link ({link}) leads nowhere" in problems("README.md", f"[a link]({link})\n")


def test_links_that_lead_somewhere() -> None:
    text = "# Here\n[a page](docs/page.md#twice), [its place](#here), [a folder](libs/rocketmq_one/two), [outside](https://x.example/y#z)\n"
    text += "```\n[no link](gone.md)\n```\n"
    assert problems("README.md", text) == []
