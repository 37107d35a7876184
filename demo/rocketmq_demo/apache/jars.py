"""Turns the pinned Maven project beside this file into a Java class path, once per content.

Everything that starts an official RocketMQ process gets its class path here. The build is cached under the hash of its
sources: a second run needs neither network nor Maven, and an edited pom never uses an old build.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROCKETMQ_VERSION = "5.3.3"
"""What maven/pom.xml pins; reports and captures name it."""

_PROJECT = Path(__file__).with_name("maven")
_PACKAGE = Path("src/main/java/io/github/rocketmqha/lab")
_BUILD_SECONDS = 900.0
"""A first download of some 130 jars over a slow line; later builds take seconds."""


class ApacheEngineUnavailable(RuntimeError):  # noqa: N818 - the name says what to do about it
    """The official engine cannot run on this machine; the message says what to install or check."""


def java() -> str:
    """The java command, from JAVA_HOME before PATH, as Maven itself chooses."""
    return _java_tool("java", "install a Java runtime, version 11 or later (17 is tested)")


def classpath(more: Path | None = None) -> str:
    """The class path with RocketMQ and our programs; the first call on a machine downloads and compiles.

    Args:
        more: a folder with more Java files of the same package (tests/lab).

    Raises:
        ApacheEngineUnavailable: no Java or no Maven, or the build failed.
    """
    sources = {path.relative_to(_PROJECT): path.read_bytes() for path in _project_files()}
    if more is not None:
        sources |= {_PACKAGE / path.name: path.read_bytes() for path in sorted(more.glob("*.java"))}
    folder = _cache_root() / f"apache-{_content_hash(sources)}"
    ready = folder / "classpath.txt"
    found = _usable(ready)
    if found is None:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder / "lock"):
            found = _usable(ready)  # another process may have built it while this one waited
            if found is None:
                _build(folder, sources)
                found = ready.read_text()
    return found


def _project_files() -> Iterator[Path]:
    yield _PROJECT / "pom.xml"
    yield from sorted((_PROJECT / "src").rglob("*.java"))


def _cache_root() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rocketmq-ha"


def _content_hash(sources: dict[Path, bytes]) -> str:
    digest = hashlib.sha256()
    for path, content in sorted(sources.items()):
        digest.update(f"{path.as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:16]


def _usable(ready: Path) -> str | None:
    """The cached class path, unless Maven's own repository has been emptied since."""
    try:
        text = ready.read_text()
    except FileNotFoundError:
        return None
    return text if all(Path(entry).exists() for entry in text.split(os.pathsep)) else None


def _build(folder: Path, sources: dict[Path, bytes]) -> None:
    java()
    _java_tool("javac", "a JDK is needed to compile the load client: install one, version 11 or later (17 is tested)")
    maven = shutil.which("mvn")
    if maven is None:
        raise ApacheEngineUnavailable("mvn was not found: install Apache Maven 3.8 or later")
    project = folder / "project"
    shutil.rmtree(project, ignore_errors=True)
    for path, content in sources.items():
        target = project / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    resolved = project / "dependencies.txt"
    goals = ["compile", "dependency:build-classpath", f"-Dmdep.outputFile={resolved}"]
    log = folder / "maven.log"
    command = [maven, "--batch-mode", "--quiet", *goals]
    try:
        with log.open("wb") as output:
            code = subprocess.run(  # noqa: S603 - a list we composed, no shell
                command,
                cwd=project,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                timeout=_BUILD_SECONDS,
                check=False,
            ).returncode
    except subprocess.TimeoutExpired as error:
        message = f"mvn did not finish within {_BUILD_SECONDS:.0f} s, see {log}: check its network or proxy settings"
        raise ApacheEngineUnavailable(message) from error
    if code != 0:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:])
        message = f"mvn failed with {code}; check its settings and network, full log in {log}\n{tail}"
        raise ApacheEngineUnavailable(message)
    # Logging configuration of RocketMQ sits inside its jars, so our classes may come first without shadowing any.
    text = os.pathsep.join([str(project / "target" / "classes"), resolved.read_text().strip()])
    fresh = folder / "classpath.txt.new"
    fresh.write_text(text)
    fresh.replace(folder / "classpath.txt")


def _java_tool(name: str, advice: str) -> str:
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(name, path=str(Path(home) / "bin")) if home else shutil.which(name)
    if found is None:
        where = f"under JAVA_HOME={home}" if home else "on the PATH"
        raise ApacheEngineUnavailable(f"{name} was not found {where}: {advice}")
    return found


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
