"""The golden samples are whole and their index tells the truth about them; what they mean is tested with the codec."""

import json
from pathlib import Path

import pytest

from tests.golden.recorder import parse

FOLDER = Path(__file__).parent / "remoting"
INDEX = json.loads((FOLDER / "index.json").read_text())


def test_every_sample_is_in_the_index() -> None:
    assert sorted(entry["file"] for entry in INDEX) == sorted(path.name for path in FOLDER.glob("*.bin"))


@pytest.mark.parametrize("entry", INDEX, ids=lambda entry: entry["file"])
def test_index_describes_the_frame(entry: dict[str, object]) -> None:
    raw = (FOLDER / str(entry["file"])).read_bytes()
    assert int.from_bytes(raw[:4], "big") == len(raw) - 4

    frame = parse(raw)

    seen = {
        "code": frame.code,
        "language": frame.language,
        "version": frame.version,
        "opaque": frame.opaque,
        "flag": frame.flag,
        "remark": frame.remark,
        "ext": frame.ext,
    }
    assert (frame.serialize, seen, len(frame.body)) == (entry["serialize_type"], entry["header"], entry["body_length"])
    assert frame.is_response == (entry["direction"] == "response")


def test_both_encodings_of_the_controller_api_are_there() -> None:
    for encoding in ("JSON", "ROCKETMQ"):
        codes = {entry["code"] for entry in INDEX if entry["serialize_type"] == encoding}
        assert codes >= {904, *range(1001, 1014)}
