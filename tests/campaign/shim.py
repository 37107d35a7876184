"""Builds shim.c and turns its knobs, one set for each node."""

import mmap
import struct
import subprocess
import uuid
from pathlib import Path

_KNOBS = struct.Struct("=3q")


def build(folder: Path) -> Path:
    """The shared library; needs a C compiler."""
    target = folder / "shim.so"
    source = Path(__file__).with_name("shim.c")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(target), str(source), "-ldl"], check=True)
    return target


class Shim:
    """The knobs of one node's processes."""

    def __init__(self, library: Path, path: Path) -> None:
        path.write_bytes(bytes(_KNOBS.size))
        self._library = library
        self._path = path
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _KNOBS.size)
        self._values = [0, 0, 0]
        self._boot_id = path.with_suffix(".boot_id")
        self.another_boot()

    @property
    def environment(self) -> dict[str, str]:
        """For the processes that load it."""
        return {
            "LD_PRELOAD": str(self._library),
            "CAMPAIGN_SHIM": str(self._path),
            "CAMPAIGN_BOOT_ID": str(self._boot_id),
        }

    def sync(self, *, delay_ms: int = 0, error: int = 0) -> None:
        """Syncs take longer, or fail with this errno."""
        self._set(0, delay_ms * 1000)
        self._set(1, error)

    def clock(self, seconds: float) -> None:
        """Set the wall clock ahead by this much."""
        self._set(2, round(seconds * 1e9))

    def another_boot(self) -> None:
        """Simulate a reboot: processes started from now on read another boot id."""
        self._boot_id.write_text(f"{uuid.uuid4()}\n")

    def _set(self, knob: int, value: int) -> None:
        self._values[knob] = value
        self._map[:] = _KNOBS.pack(*self._values)
