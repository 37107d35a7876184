"""Checks that citations in code and docs resolve; `--classes CLONE` writes the list of Java's files (make check).

A source outside of this repository has one of the forms of docs/protocol.md, section Sources. Inside it a path, a
module or a link has to exist. A file of Java has to be in hack/rocketmq-5.3.3-classes.txt.
"""

import argparse
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
CLASSES = ROOT / "hack" / "rocketmq-5.3.3-classes.txt"
TAG = "rocketmq-all-5.3.3"
HEAD = f"""\
# Files of apache/rocketmq at the tag {TAG} that code and docs cite, by name: hack/citations.py accepts no others.
# Made by `hack/citations.py --classes CLONE`, which looks for each of them in the tag; CLONE is a git clone.
"""
KINDS = (".md", ".proto", ".py", ".sh", ".toml", ".txt", ".yaml")
SKIPPED = re.compile(r"hack/(?:test_)?citations\.py$|constraints|typings/|_pb2|/testdata/|/golden/.*\.(?:txt|yaml)$")

# each begins with plain letters, which makes it quick
NO_SOURCE = [
    re.compile(text)
    for text in (r"reference,? (?:section|\d)", "Reference: ", r"DESIGN\b", r"tag 5\.3\.3", "\\.\\./shared")
]
SOURCE = re.compile(rf"Source: (?=\S)(?!{TAG}: |{TAG}:\n|fastjson-1\.2\.83: |RIP-\d|Raft, |KIP-\d|RFC \d|docs/)")
JAVA_FILE = re.compile(r"\w+\.(?:java|md)\b")
JAVA = re.compile(rf"{TAG}:(?:,?\s+(?:# )?{JAVA_FILE.pattern})*(?!\w)")
FILE = re.compile(r"(?<![\w/.$*{}-])(?:[\w-]+/)*[\w-]+\.(?:py|proto)\b(?!\()")
PATH = re.compile(
    r"(?<![\w/.-])(?:benchmarks|broker_sidecar|controller_core|crds|docs|e2e|examples|hack|libs|tests)"
    r"/(?!en/|cn/)[\w./-]*\w(?![\w*{])(#[\w-]+)?"
)
MODULE = re.compile(r"(rocketmq_(?!ha\b)\w+)\.([a-z_]\w*)")
LINK = re.compile(r"\]\((?!\w+:)([^)\s#]*)(#[^)\s]+)?\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


class Tree(NamedTuple):
    """The files to check by their paths, with their texts; every path, or part of one, that exists; files of Java."""

    texts: Mapping[str, str]
    places: frozenset[str]
    java: frozenset[str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail if something cited cannot be found")
    parser.add_argument("--classes", type=Path, metavar="CLONE", help="write the list of cited files of Java")
    options = parser.parse_args()
    tree = read()
    if options.classes is not None:
        return write_classes(tree, options.classes)
    found = list(problems(tree))
    print(*found, sep="\n", end="\n" if found else "", file=sys.stderr)
    return 1 if found else 0


def read() -> Tree:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    present = [name for name in names if (ROOT / name).exists()]
    texts = {name: (ROOT / name).read_text() for name in present if name.endswith(KINDS) and not SKIPPED.search(name)}
    lines = CLASSES.read_text().splitlines() if CLASSES.exists() else []
    return Tree(texts, places(present), frozenset(line for line in lines if not line.startswith("#")))


def places(names: list[str]) -> frozenset[str]:
    """Paths of files and folders, from the root (with a `/` in front) and from each folder on the way."""
    parts = [["", *name.split("/")] for name in names]
    return frozenset(
        "/".join(part[first:last])
        for part in parts
        for first in range(len(part))
        for last in range(first + 1, len(part) + 1)
    )


def problems(tree: Tree) -> Iterator[str]:
    """One line for each, with file and line."""
    for name, text in tree.texts.items():
        links = _links(tree, name, text) if name.endswith(".md") else ()
        for position, problem in (*_sources(tree, name, text), *_files(tree, text), *links):
            yield f"{name}:{text.count(chr(10), 0, position) + 1}: {problem}"


def _sources(tree: Tree, name: str, text: str) -> Iterator[tuple[int, str]]:
    for pattern in NO_SOURCE if not name.startswith("hack/") else ():
        yield from ((match.start(), f"{match[0]!r} is no public source") for match in pattern.finditer(text))
    yield from ((match.start(), "a source in no form of docs/protocol.md") for match in SOURCE.finditer(text))
    for match in JAVA.finditer(text):
        unknown = [file for file in JAVA_FILE.findall(match[0]) or ["such file"] if file not in tree.java]
        yield from ((match.start(), f"hack/{CLASSES.name} has no {file}: see --classes") for file in unknown)


def _files(tree: Tree, text: str) -> Iterator[tuple[int, str]]:
    for match in FILE.finditer(text):
        if match[0] not in tree.places:
            yield match.start(), f"there is no {match[0]}"
    for match in PATH.finditer(text):
        if not _has(tree, match[0].removesuffix(match[1] or ""), match[1]):
            yield match.start(), f"there is no {match[0]}"
    for match in MODULE.finditer(text):
        if not {f"{match[1]}/{match[2]}{end}" for end in ("", ".py", ".proto")} & tree.places:
            yield match.start(), f"there is no {match[0]}"


def _links(tree: Tree, name: str, text: str) -> Iterator[tuple[int, str]]:
    for match in LINK.finditer(FENCE.sub("", text)):
        page = posixpath.normpath(posixpath.join(posixpath.dirname(name), match[1])) if match[1] else name
        if not _has(tree, page, match[2]):
            yield text.find(match[0]), f"the link {match[0][1:]} leads nowhere"


def _has(tree: Tree, page: str, anchor: str | None) -> bool:
    return f"/{page}" in tree.places and (anchor is None or anchor[1:] in anchors(tree.texts.get(page, "")))


def anchors(page: str) -> set[str]:
    """Of a Markdown page's headings, as GitHub makes them."""
    made: set[str] = set()
    for heading in HEADING.findall(FENCE.sub("", page)):
        shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        anchor = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        again = sum(1 for other in made if re.fullmatch(rf"{re.escape(anchor)}(?:-\d+)?", other))
        made.add(f"{anchor}-{again}" if anchor in made else anchor)
    return made


def write_classes(tree: Tree, clone: Path) -> int:
    command = ["git", "-C", str(clone), "ls-tree", "-r", "--name-only", TAG]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    cited = {file for text in tree.texts.values() for match in JAVA.findall(text) for file in JAVA_FILE.findall(match)}
    missing = cited - {name.rpartition("/")[2] for name in listed}
    print(*(f"{TAG} has no {name}" for name in sorted(missing)), sep="\n", end="", file=sys.stderr)
    CLASSES.write_text(HEAD + "".join(f"{name}\n" for name in sorted(cited - missing)))
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
