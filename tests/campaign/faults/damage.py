"""Damage to files."""

import shutil
from collections.abc import Callable
from pathlib import Path


def keep(store: Path) -> Path:
    """A copy of the folder beside it, without sockets; returns where it is."""
    kept = store.with_name(f"{store.name}.kept")
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(store, kept, ignore=_without_sockets)
    return kept


def put_back(kept: Path, store: Path) -> None:
    """Replace `store` by the copy `kept`."""
    shutil.rmtree(store)
    kept.rename(store)


def flip(path: Path, at: int) -> None:
    """Flip one bit of a file."""
    _change(path, at, lambda byte: byte ^ 0x20)


def read(commit_log: Path, at: int) -> int | None:
    """The byte at a log's offset; None where the log has none."""
    for path in sorted(commit_log.iterdir()):
        if path.name.isdecimal() and int(path.name) <= at < int(path.name) + path.stat().st_size:
            with path.open("rb") as file:
                file.seek(at - int(path.name))
                return file.read(1)[0]
    return None


def overwrite(commit_log: Path, start: int, end: int, *, zero: bool) -> None:
    """Zeros, or one flipped bit each, from a log's offset `start` up to `end`, in whichever files that is."""
    for path in sorted(commit_log.iterdir()):
        if path.name.isdecimal():
            first = int(path.name)
            for at in range(max(start, first), min(end, first + path.stat().st_size)):
                _change(path, at - first, lambda byte: 0 if zero else byte ^ 0x20)


def _change(path: Path, at: int, change: Callable[[int], int]) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes([change(byte)]))


def _without_sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_socket()]
