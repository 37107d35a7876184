"""The entry point of the image `spark`, with commands that only say how they were called."""

import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT

SAYS = 'echo "${LD_PRELOAD:-nothing}"; grep ^spark "${NSS_WRAPPER_PASSWD:-/dev/null}"'


def called(folder: Path, *, named: bool) -> list[str]:
    """Lines of `rocketmq-verify` for a user with or without a name."""
    commands = {
        "whoami": "exit 0" if named else "exit 1",
        "id": "case $1 in -u) echo 1000680000 ;; -g) echo 0 ;; esac",
        "rocketmq-verify": SAYS,
    }
    for name, text in commands.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": str(folder)}
    entry = ["bash", str(ROOT / "spark" / "entrypoint.sh"), "--version"]
    done = subprocess.run(entry, env=environment, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def test_a_user_without_a_name_gets_one(tmp_path: Path) -> None:
    """Hadoop's login fails without one: `invalid null input: name`."""
    assert called(tmp_path, named=False) == [
        "libnss_wrapper.so",
        "spark:x:1000680000:0::/tmp:/usr/sbin/nologin",
    ]


def test_a_user_with_a_name_keeps_it(tmp_path: Path) -> None:
    assert called(tmp_path, named=True) == ["nothing"]


@pytest.mark.parametrize("package", ["libnss-wrapper", "openjdk-17-jre-headless"])
def test_the_image_has_what_it_needs(package: str) -> None:
    _, _, stage = (ROOT / "Dockerfile").read_text().partition("FROM common AS with-java")
    assert package in stage.partition("FROM ")[0]
