"""A real browser without a screen, as a process: Chromium out of a package of npm, pinned by its hash.

It is unpacked once, in the user's cache. Its own libraries and fonts are used, so that any Linux on x86-64 has all it
needs. It takes its orders over two pipes (Chrome DevTools Protocol), so it has no port.
"""

import base64
import hashlib
import json
import os
import select
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rocketmq_demo.processes import clean_environment
from tests.gate.patience import patient
from tests.interop.foreign import ClientUnavailableError, made, run

_PINNED: Final = Path(__file__).with_name("chromium.txt")
"""The package with its version, and its hash."""
_PARTS: Final = ("chromium.br", "al2023.tar.br", "fonts.tar.br", "swiftshader.tar.br")
_UNPACK: Final = "fs.writeFileSync(process.argv[2], zlib.brotliDecompressSync(fs.readFileSync(process.argv[1])))"
_FONTS: Final = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir prefix="relative">fonts</dir>
  <cachedir prefix="xdg">fonts</cachedir>
</fontconfig>
"""
"""The package's own looks in folders of the machine that it was made for; without a font no text has a place."""
_FLAGS: Final = (
    "--headless",
    "--no-sandbox",  # tests run as root, and open no page but ours
    "--no-zygote",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
_WAIT: Final = 30.0

Answer = dict[str, Any]


def browser_folder() -> Path:
    """Where it is unpacked.

    Raises:
        ClientUnavailableError: there is no npm, or it cannot fetch the package.
    """
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        raise ClientUnavailableError("node or npm was not found: install Node 18 or later")

    def make(folder: Path) -> None:
        name, pinned = _PINNED.read_text(encoding="utf-8").split()
        run([npm, "pack", "--silent", name], cwd=folder, environment=os.environ)
        (package,) = folder.glob("*.tgz")
        digest = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
        if f"sha512-{digest}" != pinned:
            raise ClientUnavailableError(f"{name} has the hash sha512-{digest}: not what was pinned")
        with tarfile.open(package) as archive:
            archive.extractall(folder, filter="data")
        package.unlink()
        parts = next(path.parent for path in (folder / "package").rglob("chromium.br"))
        for name in _PARTS:
            target = folder / name.removesuffix(".br")
            if (parts / name).exists():
                run([node, "-e", _UNPACK, str(parts / name), str(target)], cwd=folder, environment=os.environ)
            if target.suffix == ".tar" and target.exists():
                with tarfile.open(target) as archive:
                    archive.extractall(folder, filter="data")
                target.unlink()
        shutil.rmtree(folder / "package")
        (folder / "fonts.conf").write_text(_FONTS, encoding="utf-8")
        (folder / "chromium").chmod(0o755)

    return made("browser", [_PINNED], make)


class Browser:
    """One page."""

    def __init__(self, process: "subprocess.Popen[bytes]", commands: int, answers: int) -> None:
        self._process, self._commands, self._answers = process, commands, answers
        self._read, self._number, self._session = b"", 0, ""
        self.events: list[Answer] = []
        """All so far, `method` and `params` each."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Log", "Network", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: object) -> Answer:
        """What the browser answers."""
        self._number += 1
        asked = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._commands, json.dumps(asked).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, (method, answer)
        result: Answer = answer["result"]
        return result

    def open(self, page: Path, *, width: int = 1280) -> None:
        """A file, in a window of so many pixels; it is loaded when this returns."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500
        )
        self.call("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def value(self, script: str) -> Any:
        """What an expression of JavaScript has as its value, in the page."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def complaints(self) -> list[str]:
        """What the browser has logged about the page, and the errors of its scripts."""
        found = []
        for event in self.events:
            match event["method"]:
                case "Log.entryAdded":
                    found.append(event["params"]["entry"]["text"])
                case "Runtime.exceptionThrown":
                    found.append(json.dumps(event["params"]["exceptionDetails"]))
        return found

    def requested(self) -> list[str]:
        """All that the page asked for, the page itself included."""
        sent = [event["params"] for event in self.events if event["method"] == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in sent]

    def _next(self) -> Answer:
        deadline = time.monotonic() + patient(_WAIT)
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._answers], [], [], max(deadline - time.monotonic(), 0.0))
            data = os.read(self._answers, 1 << 20) if ready else b""
            if not data:
                raise TimeoutError(f"no answer of the browser, which has exit code {self._process.poll()}")
            self._read += data
        text, _, self._read = self._read.partition(b"\0")
        answer: Answer = json.loads(text)
        return answer


@contextmanager
def started(profile: Path) -> Iterator[Browser]:
    """A browser until the block ends; its files are in `profile`."""
    folder = browser_folder()
    theirs, commands = os.pipe()
    answers, ours = os.pipe()
    script = f'exec "$0" "$@" 3<&{theirs} 4>&{ours}'
    command = ["bash", "-c", script, str(folder / "chromium"), *_FLAGS, f"--user-data-dir={profile}"]
    with (profile.parent / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env=_environment(folder, profile.parent),
            stdin=subprocess.DEVNULL,
            stderr=log,
            pass_fds=(theirs, ours),
        )
    os.close(theirs)
    os.close(ours)
    try:
        yield Browser(process, commands, answers)
    finally:
        os.close(commands)
        os.close(answers)
        process.kill()
        process.wait()


def _environment(folder: Path, home: Path) -> Mapping[str, str]:
    """With its own libraries and fonts."""
    own = {"LD_LIBRARY_PATH": str(folder / "lib"), "FONTCONFIG_FILE": str(folder / "fonts.conf")}
    return {**clean_environment(), **own, "HOME": str(home), "XDG_CACHE_HOME": str(home)}
