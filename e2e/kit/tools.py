"""The commands that the suite runs, and what it means that one is missing: a skip on a laptop, a failure in CI."""

import os
import shutil
from typing import NoReturn

import pytest


def unavailable(reason: str) -> NoReturn:
    """Skip what asked; with CI=true fail it."""
    if os.environ.get("CI", "").lower() in {"", "0", "false"}:
        pytest.skip(reason)
    pytest.fail(reason, pytrace=False)


def command(name: str, chosen: str | None, advice: str) -> str:
    """Path of a command: the one chosen, or what PATH has."""
    found = shutil.which(chosen or name)
    if found is None:
        unavailable(f"{chosen or name} was not found: {advice}")
    return found


def docker() -> str:
    """The docker command; DOCKER names another."""
    return command("docker", os.environ.get("DOCKER"), "install Docker, or name its command in DOCKER")
