"""Finds words that are not plain English in what people read, and cells of tables that are too long. `--check` fails on
them in what users read and in the product's code (make check), `--list PREFIX` shows them in all files below a folder,
`--count` gives hits per 10,000 words, of other projects too.

Users read the docs, the CRDs, the chart, the protos, help texts, error messages and log lines; maintainers read
docstrings and comments. Strings of code are those in product packages only.
"""

import argparse
import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent

BANNED = {
    r"whoever|whosoever": "the replica (client, user) that",
    r"anew": "again",
    r"nobody": "no one; or name the thing",
    r"somebody|someone else's": "name who",
    r"all the same": "still",
    r"in vain": "without success; failed",
    r"(?:is|are|was|were|be|been|being) told": "is reported, sent, notified",
    r"of (?:no )?use": "useful, usable",
    r"go(?:es)? on|went on|going on": "continues",
    r"but for": "except",
    r"at the (?:most|least)": "at most, at least",
    r"(?:is|are) (?-i:none)(?! of)": "is not one",
    r"for so long|so long as|for as long as": "while; for that long",
    r"no more than that|not any more|no more(?! than)": "no longer",
    r"let go of": "released",
    r"hitherto|thereby|thereupon|wherein|whereby|thus|hence": "so",
    r"lest": "so that ... not",
    r"upon": "on",
    r"amiss": "wrong",
    r"akin": "like",
    r"alike": "equal; the same",
    r"beheld|behold|betimes|oft|ere": "plain words",
    r"put right|set right": "fixed",
    r"there is no (?:such )?thing as": "does not exist",
    r"come(?:s)? to nothing|for nothing": "fails",
    r"makes? do": "uses",
    r"as it were|so to speak": "(delete)",
    r"on (?:his|its|their) own account": "itself",
    r"be(?:ing)? gone": "deleted, removed",
    r"take(?:s|n)? leave": "unregisters",
    r"of late": "recently",
    r"on (?:the|its|their) way out": "leaving",
    r"had better": "should",
    r"the like": "similar",
    r"meanwhile": "until then; during the call; already; or delete it",
    r"so (?:many|long)(?! (?:as|that)\b)": "this number, this time",
    r"for ever": "forever; without end",
}
WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
PATTERN = re.compile("|".join(rf"(?P<b{number}>\b(?:{text})\b)" for number, text in enumerate(BANNED)), re.IGNORECASE)
ADVICE = list(BANNED.values())
NOT_READ = re.compile(
    r"tests/golden|testdata|_pb2|LICENSE|constraints|typings/|hack/(?:test_)?english\.py|helm/rocketmq-ha/crds"
)
PRODUCT = re.compile(
    r"(?:admin|broker|broker_sidecar|controller_core|demo|helm|kubectl|libs|nameserver|operator|spark)/.*\.py$"
)


CELL = 190
"""Characters of a cell that are read as text: without code, targets of links, names of tests and of issues."""
CELL_SENTENCES = 2
NO_TEXT = re.compile(r"`[^`]*`|\]\([^)]*\)|\b\w+_\w+\b|[\w.-]+/[\w.-]+#\d+")


class Text(NamedTuple):
    """A piece of text that people read."""

    path: str
    line: int
    area: str
    """user or maintainer."""
    text: str


def texts(root: Path, paths: list[str]) -> Iterator[Text]:
    """What people read in these files."""
    for path in paths:
        if NOT_READ.search(path):
            continue
        file = root / path
        if path.endswith((".md", ".rst", ".yaml", ".yml", ".proto", ".tpl")):
            yield from _lines(path, file.read_text(errors="replace"))
        elif path.endswith(".py"):
            yield from _python(path, file.read_text(errors="replace"))


def _lines(path: str, content: str) -> Iterator[Text]:
    fenced = False
    for number, line in enumerate(content.splitlines(), 1):
        if path.endswith(".md") and line.lstrip().startswith("```"):
            fenced = not fenced
        if not fenced:
            area = "user" if not path.startswith((".github/", "e2e/", "tests/")) else "maintainer"
            yield Text(path, number, area, re.sub(r"`[^`]*`", "", line) if path.endswith(".md") else line)


def _python(path: str, content: str) -> Iterator[Text]:
    try:
        tree = ast.parse(content)
    except SyntaxError:
        return
    docs = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                docs.add(statement.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if node in docs:
                yield Text(path, node.lineno, "maintainer", node.value)
            elif PRODUCT.match(path) and " " in node.value:
                yield Text(path, node.lineno, "user", node.value)
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        if token.type == tokenize.COMMENT:
            yield Text(path, token.start[0], "maintainer", token.string)


def hits(text: Text) -> Iterator[tuple[int, str, str]]:
    """(line, words, advice) of each banned phrase."""
    for found in PATTERN.finditer(text.text):
        number = int((found.lastgroup or "b0")[1:])
        yield text.line + text.text.count("\n", 0, found.start()), found[0], ADVICE[number]


def long_cells(path: str, content: str) -> Iterator[tuple[int, str]]:
    """(line, why) of each cell of a page's tables that a reader cannot take in at a glance."""
    if not path.endswith(".md"):
        return
    for text in _lines(path, content):
        if text.text.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", text.text):
                read = NO_TEXT.sub("", cell).strip()
                sentences = len(re.findall(r"\.(?= [A-Z])", read)) + 1
                if len(read) > CELL or sentences > CELL_SENTENCES:
                    yield text.line, f"a cell of {len(read)} characters, sentences: {sentences}: {cell.strip()[:60]!r}"


def tracked(root: Path) -> list[str]:
    """The files of a git repository."""
    listed = subprocess.run(["git", "-C", str(root), "ls-files", "-z"], capture_output=True, text=True, check=True)
    return [path for path in listed.stdout.split("\0") if path and (root / path).is_file()]


def count(root: Path) -> dict[str, tuple[int, int]]:
    """Area to (words, hits)."""
    found: dict[str, tuple[int, int]] = {}
    for text in texts(root, tracked(root)):
        words, banned = found.get(text.area, (0, 0))
        found[text.area] = words + len(WORD.findall(text.text)), banned + sum(1 for _ in hits(text))
    return found


def main() -> int:
    """0: nothing found; 1: something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="fail on banned words in what users read and in product code"
    )
    parser.add_argument("--list", metavar="PREFIX", help="print each hit in files below PREFIX")
    parser.add_argument("--count", action="store_true", help="hits per 10,000 words")
    parser.add_argument("folders", nargs="*", type=Path, help="other projects to count")
    options = parser.parse_args()
    if options.count or options.folders:
        for root in (ROOT, *options.folders):
            for area, (words, banned) in sorted(count(root).items()):
                rate = banned * 10_000 / words
                print(f"{root.name:30} {area:12} {words:8} words {banned:6} hits {rate:7.1f} per 10,000")
        return 0
    failed = False
    for path in tracked(ROOT):
        if options.list is None or path.startswith(options.list):
            for line, why in long_cells(
                path, (ROOT / path).read_text(errors="replace") if path.endswith(".md") else ""
            ):
                failed = True
                print(f"{path}:{line}: {why}: say more in a section")
    for text in texts(ROOT, tracked(ROOT)):
        if options.list is None and text.area != "user" and not PRODUCT.match(text.path):
            continue
        if options.list is not None and not text.path.startswith(options.list):
            continue
        for line, words, advice in hits(text):
            failed = True
            print(f"{text.path}:{line}: {text.area}: {words!r}: {advice}")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
