"""Finds tests that depend on the speed of the machine: hack/real_time.py --check.

A test without the marks processes, interop and java gets no second chance (tests/gate), so it must pass on a machine
that stalls for seconds. It may not sleep in a thread, read the real clock, or give anything less than a second, unless
its time is virtual (the mark looptime) or the line ends with `# any speed` and is right at any speed: for example
because a stall makes it only slower.
"""

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SLOW_MARKS = {"processes", "interop", "java", "looptime"}
CLOCKS = {("time", name) for name in ("sleep", "monotonic", "perf_counter", "time")}
LIMITS = {("asyncio", "timeout"): 0, ("asyncio", "wait_for"): 1}
"""Position of the argument with the seconds."""
LEAST = 1.0
EXEMPT = "# any speed"


def problems(name: str, text: str) -> Iterator[str]:
    """A line for each place of the file `name` that depends on the machine's speed."""
    lines = text.splitlines()
    for node, why in _found(ast.parse(text)):
        if not lines[node.lineno - 1].rstrip().endswith(EXEMPT):
            yield f"{name}:{node.lineno}: {why}"


def _found(node: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    if _marks(node) & SLOW_MARKS:
        return
    if isinstance(node, ast.Call) and (why := _judge(node)):
        yield node, why
    for child in ast.iter_child_nodes(node):
        yield from _found(child)


def _marks(node: ast.AST) -> set[str]:
    """Names of the pytest marks on a function or class, or those of the module."""
    if isinstance(node, ast.Module):
        marked = [
            one.value
            for one in node.body
            if isinstance(one, ast.Assign) and "pytestmark" in ast.unparse(one.targets[0])
        ]
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        marked = list(node.decorator_list)
    else:
        return set()
    return {one.attr for root in marked for one in ast.walk(root) if isinstance(one, ast.Attribute)}


def _judge(call: ast.Call) -> str:
    function = call.func
    owner = (function.value.id, function.attr) if _is_plain(function) else None
    if owner in CLOCKS:
        return f"{'.'.join(owner)} is the machine's time"
    values = [word.value for word in call.keywords if word.arg == "timeout"]
    if owner in LIMITS:
        values += call.args[LIMITS[owner] : LIMITS[owner] + 1]
    for value in values:
        if isinstance(value, ast.Constant) and isinstance(value.value, float | int) and 0 < value.value < LEAST:
            return f"{value.value:g} s pass on a machine that stalls"
    return ""


def _is_plain(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", required=True)
    parser.parse_args()
    found = [
        problem
        for file in sorted((ROOT / "tests").rglob("test_*.py"))
        for problem in problems(str(file.relative_to(ROOT)), file.read_text())
    ]
    print("\n".join(found), file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
