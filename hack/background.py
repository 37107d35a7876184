"""Finds tasks of product code whose failure would not be reported: hack/background.py --check.

asyncio reports the failure of a task when the task is collected as garbage, without a name, or never. So product code
makes tasks by `rocketmq_runtime.background`, or in an `asyncio.TaskGroup`, and does not drop the future of a thread.
"""

import argparse
import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = [
    "admin",
    "broker",
    "broker_sidecar",
    "controller_core",
    "demo",
    "kubectl",
    "libs",
    "nameserver",
    "operator",
    "spark",
]
HOME = "libs/rocketmq_runtime/background.py"
MAKES_TASKS = {"create_task", "ensure_future", "run_coroutine_threadsafe"}
HAS_RESULT = {"awaited", "run_in_executor"}
"""What they return must be read."""


def problems(name: str, text: str) -> Iterator[str]:
    """A line for each place of the file `name` that makes a task by itself, or drops a future."""
    tree = ast.parse(text)
    groups = set(_groups(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in MAKES_TASKS and _owner(node) not in groups:
            yield f"{name}:{node.lineno}: {_called(node)}: make the task by rocketmq_runtime.background"
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _called(node.value) in HAS_RESULT:
            yield f"{name}:{node.lineno}: {_called(node.value)}: its failure is dropped with its result"


def _groups(tree: ast.AST) -> Iterator[str]:
    """Names of the task groups: their block raises what their tasks raise."""
    for node in ast.walk(tree):
        for item in node.items if isinstance(node, ast.AsyncWith) else ():
            made, name = item.context_expr, item.optional_vars
            if isinstance(made, ast.Call) and _called(made) == "TaskGroup" and isinstance(name, ast.Name):
                yield name.id


def _called(call: ast.Call) -> str:
    """The last name of what is called."""
    function = call.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _owner(call: ast.Call) -> str:
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    return owner.id if isinstance(owner, ast.Name) else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", required=True)
    parser.parse_args()
    found = [
        problem
        for folder in PRODUCT
        for file in sorted((ROOT / folder).rglob("*.py"))
        if (name := str(file.relative_to(ROOT))) != HOME
        for problem in problems(name, file.read_text())
    ]
    print("\n".join(found), file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
