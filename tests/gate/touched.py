"""`python -m tests.gate.touched BASE`: the folders with tests of the packages that differ from a commit, for `make
quick`. The folders of `tests` are named after the packages."""

import subprocess
import sys
from collections.abc import Iterable
from pathlib import PurePath

from tests.paths import ROOT

ALWAYS = "tests/hack"
"""Fast, and never without a test."""
FOLDERS = {
    "admin": ("admin",),
    "broker": ("broker",),
    "broker_sidecar": ("sidecar",),
    "controller_core": ("controller", "scenarios"),
    "demo": ("demo",),
    "e2e": ("operator",),  # its table of cases for the CRDs
    "helm": ("helm",),
    "kubectl": ("kubectl",),
    "nameserver": ("namesrv",),
    "operator": ("operator",),
    "spark": ("verify",),
}
LIBRARIES = {"resources": "operator"}
"""Those that are tested in another package's folder."""


def folders(changed: Iterable[str]) -> list[str]:
    """The test folders for these files; paths are relative to the repository."""
    found = {ALWAYS}
    for path in changed:
        top, *rest = PurePath(path).parts
        names: Iterable[str] = FOLDERS.get(top, ())
        if top == "libs" and rest:
            library = rest[0].removeprefix("rocketmq_")
            names = (LIBRARIES.get(library, library),)
        elif top == "tests" and len(rest) > 1:
            names = (rest[0],)
        found.update(f"tests/{name}" for name in names)
    return sorted(name for name in found if any((ROOT / name).rglob("test_*.py")))


def main() -> int:
    git = ["git", "-C", str(ROOT)]
    changed: list[str] = []
    for command in (["diff", "--name-only", sys.argv[1]], ["ls-files", "--others", "--exclude-standard"]):
        done = subprocess.run([*git, *command], capture_output=True, text=True, check=True)
        changed += done.stdout.splitlines()
    print(*folders(changed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
