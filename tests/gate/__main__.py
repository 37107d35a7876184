"""`python -m tests.gate PHASE [ARGUMENTS OF PYTEST]` runs one phase. Its exit code is pytest's, and 0 if each failure
had a second chance and passed.

build/gate/PHASE has the records, build/evidence what failures left behind, build/unstable.jsonl the tests that failed
once.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.gate import descendants, patience
from tests.gate.records import Record, Run, Unstable, failures, read, record_file
from tests.gate.report import unstable_table

TESTS_FAILED = 1
NO_TESTS = 5
"""pytest's exit codes if it ran to its end and tests failed, or if it found none."""
MOST_REPEATED = 60
"""More failures than this are no accident, and would take too long one after the other."""
USAGE = 64


def main(arguments: Sequence[str]) -> int:
    if not arguments or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return USAGE
    phase, *rest = arguments
    folder = Path("build/gate").absolute() / phase
    shutil.rmtree(folder, ignore_errors=True)
    descendants.adopt_orphans()
    os.environ.setdefault(patience.VARIABLE, str(patience.measure()))
    code = _pytest(folder, "first", rest)
    print(f"gate: patience {patience.patient(1):g}, 1 is that of a quiet machine", flush=True)
    if code == NO_TESTS and "--gate-unstable" in rest:
        print("gate: no test has left it")
        return 0
    failed = failures(read(record_file(folder, "first")))
    if code != TESTS_FAILED or not failed:
        return code
    if why := _no_second_chance(failed):
        print(f"gate: no second run: {why}")
        return code
    descendants.end_all()
    print(f"gate: {len(failed)} failed; each runs once more, alone", flush=True)
    # The last -n wins. To name the files saves looking for tests in all others.
    files = sorted({record.test.partition("::")[0] for record in failed})
    code = _pytest(folder, "second", [*rest, "-n", "0", *files])
    repeated = {record.test: record for record in read(record_file(folder, "second"))}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    unstable = [Unstable(now, phase, record, repeated.get(record.test)) for record in failed]
    with Path("build/unstable.jsonl").open("ab") as file:
        file.writelines(msgspec.json.encode(one) + b"\n" for one in unstable)
    print("\n".join(unstable_table(unstable)), flush=True)
    if all(one.passed for one in unstable):
        return code
    return code or TESTS_FAILED


def _pytest(folder: Path, run: Run, arguments: Sequence[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-p", "tests.gate.plugin"]
    command += ["--gate-folder", str(folder), "--gate-run", run, *arguments]
    return subprocess.run(command, check=False, env={**os.environ, "PYTHONUNBUFFERED": "1"}).returncode


def _no_second_chance(failed: Sequence[Record]) -> str:
    """Why these failures count at once; empty if they do not."""
    final = [record.test for record in failed if not record.repeatable]
    if final:
        return f"{len(final)} of the failures are deterministic, {final[0]} is one"
    if len(failed) > MOST_REPEATED:
        return f"{len(failed)} failures, more than {MOST_REPEATED}"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
