"""Clients that are not Java's: Go's, the C++ client (with Python around it) and Node's, as processes.

Each is built from the pinned project beside this file (`go`, `cpp`, `node`), once per content, in the user's cache.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocketmq_demo.processes import OwnedProcess, ProcessDiedError, clean_environment
from tests.gate.patience import patient

_HERE = Path(__file__).parent
_MAKE_SECONDS = 600.0
"""To download and compile for the first time; half a minute is usual."""
_WAIT = 60.0
_POLL = 0.05


class ClientUnavailableError(RuntimeError):
    """A client is not available on this machine; the text names what to install."""


@dataclass(frozen=True)
class Client:
    """How to start a consumer or a producer: a command that takes name servers, group, topic, expression and mode."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    modes: Sequence[str] = ("cluster", "broadcast", "orderly")
    """In which it consumes."""


@dataclass(frozen=True)
class Received:
    """A message as a consumer saw it, or as a producer's was acknowledged."""

    body: str
    tags: str
    queue_id: int
    offset: int


def go_client() -> Client:
    """rocketmq-client-go, compiled."""
    go = shutil.which("go")
    if go is None:
        raise ClientUnavailableError("go was not found: install Go 1.21 or later")
    sources = [_HERE / "go" / name for name in ("go.mod", "go.sum", "main.go")]

    def make(folder: Path) -> None:
        # no cgo: half of the time of a first compilation
        environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
        run([go, "build", "-o", str(folder / "client"), "."], cwd=_HERE / "go", environment=environment)

    return Client("go", [str(made("go", sources, make) / "client")], clean_environment())


def cpp_client() -> Client:
    """librocketmq out of the wheel that wraps it, apart from our own packages."""
    requirements = _HERE / "cpp" / "requirements.txt"

    def make(folder: Path) -> None:
        options = ["--quiet", "--disable-pip-version-check", "--require-hashes", "--no-deps", "--only-binary", ":all:"]
        command = [sys.executable, "-m", "pip", "install", *options, "--target", str(folder), "-r", str(requirements)]
        run(command, cwd=folder, environment=os.environ)

    packages = made("cpp", [requirements], make)
    environment = {**clean_environment(), "PYTHONPATH": str(packages), "HOME": str(packages)}
    return Client("cpp", [sys.executable, str(_HERE / "cpp" / "client.py")], environment)


def node_client() -> Client:
    """ali-ons, which needs no compiler."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise ClientUnavailableError("node or npm was not found: install Node 18 or later")
    sources = [_HERE / "node" / name for name in ("package.json", "package-lock.json")]

    def make(folder: Path) -> None:
        for source in sources:
            shutil.copy(source, folder)
        run([npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=folder, environment=os.environ)

    environment = {**clean_environment(), "NODE_PATH": str(made("node", sources, make) / "node_modules")}
    return Client("node", ["node", str(_HERE / "node" / "client.js")], environment, modes=("cluster", "broadcast"))


class Running(OwnedProcess):
    """A push consumer or a producer that runs until it is closed, or `finish` makes it leave in order."""

    def __init__(
        self, client: Client, folder: Path, *, namesrv: str, group: str, topic: str, tags: str = "*", mode: str
    ) -> None:
        """`mode` is one of `Client.modes`, or send: then `tags` are those of its messages in turns."""
        super().__init__(
            f"{client.name}-{mode}-{folder.name}",
            [*client.command, namesrv, group, topic, tags, mode],
            folder=folder,
            environment=client.environment,
            stdin_open=True,
        )

    @property
    def messages(self) -> list[Received]:
        """Every message so far that was received, or acknowledged, in this order."""
        lines = self.output().rpartition("\n")[0].splitlines()
        rows = [json.loads(line) for line in lines if line.startswith('{"body"')]
        return [Received(row["body"], row["tags"], row["queueId"], row["offset"]) for row in rows]

    def wait_until(self, what: str, condition: Callable[[], bool]) -> None:
        """Wait until `condition` holds; `what` describes it.

        Raises:
            TimeoutError, ProcessDiedError: it did not hold in time, or this process ended.
        """
        deadline = time.monotonic() + patient(_WAIT)
        while not condition():
            if not self.alive:
                raise ProcessDiedError(f"{self.name} ended with {self.exit_code}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name} waited {_WAIT:g} s for {what}:\n{self.tail()}")
            time.sleep(_POLL)

    def finish(self) -> None:
        """Make it leave; a consumer commits its offsets."""
        self.close_stdin()
        try:
            self.wait(_WAIT)
        finally:
            self.close()


def made(name: str, sources: Sequence[Path], make: Callable[[Path], None]) -> Path:
    """The folder that `make` filled from these sources, now or earlier."""
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rocketmq-ha"
    folder = root / f"{name}-client-{sys.platform}-{digest}"
    root.mkdir(parents=True, exist_ok=True)
    with (root / f"{name}-client.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            fresh = folder.with_suffix(".new")
            shutil.rmtree(fresh, ignore_errors=True)
            fresh.mkdir()
            make(fresh)
            fresh.rename(folder)
    return folder


def run(command: Sequence[str], *, cwd: Path, environment: Mapping[str, str]) -> None:
    """Raises `ClientUnavailableError`: the command fails, or takes too long."""
    try:
        result = subprocess.run(
            list(command),
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_MAKE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ClientUnavailableError(f"{command[0]} did not finish within {_MAKE_SECONDS:.0f} s") from error
    if result.returncode != 0:
        lines = (result.stderr or result.stdout).splitlines()[-10:]
        raise ClientUnavailableError(f"{command[0]} failed with {result.returncode}:\n" + "\n".join(lines))
