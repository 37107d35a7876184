"""`--pre-stop`: the broker's end waits for the sidecar's."""

import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketmq_broker.__main__ import main
from rocketmq_broker.pre_stop import wait_for_sidecar


class Sidecar:
    """Listens; what becomes of each connection is up to the test."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listening.bind(str(path))
        self.listening.listen()

    def serve(self, *connections: Callable[[socket.socket], None]) -> threading.Thread:
        """Take one connection for each, then end."""

        def run() -> None:
            for handle in connections:
                connection, _ = self.listening.accept()
                with connection:
                    handle(connection)
            self.end()

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def end(self) -> None:
        self.listening.close()
        self.path.unlink(missing_ok=True)


def never(_: float) -> None:
    raise AssertionError("nothing to pause for")


def test_no_sidecar_is_no_reason_to_wait(tmp_path: Path) -> None:
    assert wait_for_sidecar(tmp_path / "sidecar.sock", pause=never)
    assert wait_for_sidecar(tmp_path / "no folder" / "sidecar.sock", pause=never)


def test_what_a_sidecar_that_was_killed_left_behind(tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path / "sidecar.sock")
    sidecar.listening.close()
    assert wait_for_sidecar(sidecar.path, pause=never)
    assert sidecar.path.exists()


def test_waits_until_the_sidecar_ends(tmp_path: Path) -> None:
    """It closes its strangers when it ends, and may have closed some before."""
    folder = tmp_path / ("long" * 30)  # more than a socket's address holds
    folder.mkdir()
    sidecar = Sidecar(tmp_path / "sidecar.sock")
    sidecar.path = sidecar.path.rename(folder / "sidecar.sock")
    pauses: list[float] = []
    told = threading.Event()

    def hold(connection: socket.socket) -> None:
        connection.sendall(b"x")
        told.wait(30)

    thread = sidecar.serve(lambda _: None, hold)

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) > 1:
            thread.join(30)
        told.set()

    assert wait_for_sidecar(sidecar.path, seconds=60, pause=pause)
    thread.join(30)
    assert pauses


def test_not_for_ever(tmp_path: Path) -> None:
    sidecar = Sidecar(tmp_path / "sidecar.sock")
    times = iter([0.0, 0.0, 10.0])
    thread = sidecar.serve(lambda _: None)
    try:
        assert not wait_for_sidecar(sidecar.path, seconds=5, pause=lambda _: None, clock=lambda: next(times))
    finally:
        thread.join(30)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--pre-stop", str(tmp_path / "sidecar.sock")]) == 0
    assert capsys.readouterr().err == ""
