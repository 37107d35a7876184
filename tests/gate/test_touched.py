"""Which tests `make quick` runs."""

import pytest

from tests.gate.touched import FOLDERS, folders
from tests.paths import ROOT


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ([], []),
        (["README.md", "tests/conftest.py"], []),
        (["broker/rocketmq_broker/app.py"], ["tests/broker"]),
        (["controller_core/rocketmq_controller/app.py"], ["tests/controller", "tests/scenarios"]),
        (["libs/rocketmq_store/flush.py", "tests/store/kit.py"], ["tests/store"]),
        (["libs/rocketmq_resources/names.py"], ["tests/operator"]),
        (["e2e/api/crd_cases.py"], ["tests/operator"]),
        (["constraints.txt", "libs"], []),
    ],
)
def test_folders(changed: list[str], expected: list[str]) -> None:
    assert folders(changed) == sorted(["tests/hack", *expected])


def test_each_package_has_its_folders() -> None:
    assert all((ROOT / "tests" / name).is_dir() for names in FOLDERS.values() for name in names)
    libraries = [path.name.removeprefix("rocketmq_") for path in (ROOT / "libs").glob("rocketmq_*")]
    assert [name for name in libraries if len(folders([f"libs/rocketmq_{name}/a.py"])) != 2] == []
