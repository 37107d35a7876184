"""Every story under testdata/, each played on a fresh stage."""

from pathlib import Path

import pytest

from tests.scenarios import controller_stage, transcripts

TESTDATA = Path(__file__).parent / "testdata"
CONTROLLER_STORIES = sorted((TESTDATA / "controller").glob("*.txt"))


@pytest.mark.parametrize("path", CONTROLLER_STORIES, ids=lambda path: path.stem)
def test_controller_story(path: Path) -> None:
    transcripts.play(path, controller_stage.Stage().run)


def test_there_are_stories() -> None:
    assert CONTROLLER_STORIES
