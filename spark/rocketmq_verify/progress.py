"""The progress of a run on standard error: one line that changes on a terminal, a line per phase elsewhere."""

import sys
import threading
import time
from types import TracebackType
from typing import Final, Protocol, Self, TextIO

_PERIOD: Final = 0.25


class Progress(Protocol):
    def phase(self, text: str) -> None:
        """A new phase begins."""

    def step(self, done: int, total: int) -> None:
        """Parts of this phase that are done."""


class NoProgress:
    """Shows nothing."""

    def phase(self, text: str) -> None:
        """See `Progress`."""

    def step(self, done: int, total: int) -> None:
        """See `Progress`."""


class Watched:
    """`Progress` on a stream; on a terminal its own thread counts the seconds."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._lock = threading.Lock()
        self._text, self._part, self._began = "", "", time.monotonic()
        self._width = 0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._terminal:
            self._thread = threading.Thread(target=self._keep_drawing, name="progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()
            with self._lock:
                self._write("")

    def phase(self, text: str) -> None:
        with self._lock:
            self._text, self._part = text, ""
            if self._terminal:
                self._draw()
            else:
                self._stream.write(f"{time.monotonic() - self._began:6.1f} s  {text}\n")
                self._stream.flush()

    def step(self, done: int, total: int) -> None:
        with self._lock:
            self._part = f" ({done} of {total} parts)"

    def _keep_drawing(self) -> None:
        while not self._end.wait(_PERIOD):
            with self._lock:
                self._draw()

    def _draw(self) -> None:
        if self._text:
            self._write(f"{time.monotonic() - self._began:6.1f} s  {self._text}{self._part}")

    def _write(self, text: str) -> None:
        self._stream.write("\r" + text.ljust(self._width) + ("" if text else "\r"))
        self._stream.flush()
        self._width = len(text)
