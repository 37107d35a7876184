"""What the official name server answered, step by step, ours answers too: byte for byte except Java's hash order."""

import json
from pathlib import Path
from typing import Any

import pytest

from rocketmq_formats.codes import RequestCode
from rocketmq_formats.json import fastjson
from tests.golden.namesrv_story import STORY, Step
from tests.namesrv.namesrv_kit import Door
from tests.paths import GOLDEN_FILES

GOLDEN = json.loads((GOLDEN_FILES / "namesrv" / "answers.json").read_text())


@pytest.mark.parametrize("acting", [False, True], ids=["plain", "supportActingMaster"])
async def test_every_answer_of_the_story(tmp_path: Path, acting: bool) -> None:
    door = Door(tmp_path, supportActingMaster=str(acting).lower())
    expected = GOLDEN["answers"] | (GOLDEN["with supportActingMaster"] if acting else {})
    for step in STORY:
        if step.code == 0:
            door.close(step.connection)
            continue
        if step.code == RequestCode.UPDATE_NAMESRV_CONFIG:
            answer = await door.update(step.body)
        else:
            answer = await door.told(step.code, step.ext, step.body, connection=step.connection, version=step.version)
        told = {
            "code": answer.code,
            "remark": answer.remark,
            "ext": answer.ext_fields,
            "body": answer.body.decode(),
        }
        assert comparable(step, told) == comparable(step, expected[step.name]), step.name


def comparable(step: Step, answer: dict[str, Any]) -> dict[str, Any]:
    """`answer` without what Java's hash tables decide."""
    if not step.tags:
        return answer
    body = fastjson.loads(answer["body"].encode())
    assert isinstance(body, dict)
    if "any broker" in step.tags:
        body = {**body, "brokerAddr": "any"}
    return {**answer, "body": _sorted(body)}


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return sorted((_sorted(inner) for inner in value), key=json.dumps)
    return value
