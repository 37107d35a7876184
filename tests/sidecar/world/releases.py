"""What an earlier release knows of the messages between sidecars and controllers: nothing of the fields that came
later. Both sides ignore fields that they do not know, so one of them that is older is the same as messages without.

The fields are those whose docstring in `rocketmq_formats.remoting.controller` says that 5.3.3 does not know them.
"""

import ast
import inspect
from itertools import pairwise
from typing import TypeVar

import msgspec

from rocketmq_formats.remoting import controller

T = TypeVar("T", bound=msgspec.Struct)
MARK = "Ours, unknown to 5.3.3:"


def _later_fields() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for struct in ast.parse(inspect.getsource(controller)).body:
        body = struct.body if isinstance(struct, ast.ClassDef) else []
        for field, text in pairwise(body):
            if (
                isinstance(struct, ast.ClassDef)
                and isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
                and str(text.value.value).startswith(MARK)
            ):
                found.setdefault(struct.name, []).append(field.target.id)
    return found


LATER = _later_fields()
"""By the name of the message."""


def as_first_released(message: T) -> T:
    """`message` without what came later."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(message)}
    return msgspec.structs.replace(message, **{name: defaults[name] for name in LATER.get(type(message).__name__, ())})


def replicas_as_first_released(body: controller.BrokerReplicasInfo) -> controller.BrokerReplicasInfo:
    """The same of each replica in it."""
    return controller.BrokerReplicasInfo(
        replicas_info_table={
            name: msgspec.structs.replace(
                group,
                in_sync_replicas=[as_first_released(one) for one in group.in_sync_replicas],
                not_in_sync_replicas=[as_first_released(one) for one in group.not_in_sync_replicas],
            )
            for name, group in body.replicas_info_table.items()
        }
    )
