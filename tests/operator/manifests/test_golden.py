"""Whole objects as YAML: a change of the manifests shows as a difference of files.

With ROCKETMQ_HA_REWRITE=1 they are rewritten: commit the difference only if you understand each line of it.
"""

import json
import os
from pathlib import Path

import pytest
import yaml

from tests.operator.manifests import cases

GOLDEN = Path(__file__).parent / "golden"
REWRITE = os.environ.get("ROCKETMQ_HA_REWRITE") == "1"
MADE = {
    **{f"example-{name}": objects for name, objects in cases.examples().items()},
    **{name: objects for name, objects in cases.everything().items() if name in ("controllers-full", "group-full")},
}


class Readable(yaml.SafeDumper):
    """Files in ConfigMaps line by line."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


Readable.add_representer(str, _text)


@pytest.mark.parametrize("name", MADE)
def test_objects_are_those_on_file(name: str) -> None:
    objects = json.loads(json.dumps(MADE[name]))
    text = yaml.dump_all(objects, Dumper=Readable, sort_keys=False, allow_unicode=True, width=120)
    path = GOLDEN / f"{name}.yaml"
    if REWRITE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


def test_no_file_without_a_case() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == MADE.keys()
