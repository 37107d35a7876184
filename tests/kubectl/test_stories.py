"""Every story under testdata/: command lines, what they print, and their exit codes."""

from pathlib import Path

import pytest

from tests.command_lines import Tool
from tests.kubectl.fake_cluster import FakeCluster
from tests.kubectl.stage import Stage
from tests.scenarios import transcripts

STORIES = sorted((Path(__file__).parent / "testdata").glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_story(path: Path, cluster: FakeCluster, plugin: Tool) -> None:
    transcripts.play(path, Stage(cluster, plugin).run)


def test_there_are_stories() -> None:
    assert STORIES
