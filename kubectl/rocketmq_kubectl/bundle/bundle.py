"""The files of a support bundle: collected one by one, redacted, and written as one zip. Used by `report`."""

import asyncio
import urllib.request
import zipfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import yaml

from rocketmq_kubectl.bundle import redact
from rocketmq_kubectl.cluster import resources
from rocketmq_kubectl.cluster.kube import in_thread
from rocketmq_kubectl.cluster.resources import Json, Pod
from rocketmq_kubectl.cluster.session import Session
from rocketmq_kubectl.errors import CommandRefusedError, PluginError, UnreachableError
from rocketmq_kubectl.output import Form, render
from rocketmq_kubectl.run import Report
from rocketmq_runtime.version import __version__

PARALLEL: Final = 8
"""Items that are collected concurrently."""
MAX_FILE: Final = 32 * 1024 * 1024
"""Characters of one file; a longer log loses its beginning."""
README: Final = """Support bundle of broker group {subject}, made by kubectl rocketmq {version}.

status.txt, sync-state-set.json, epochs.json, controllers.json: output of the commands of these names.
resources/: our resources and the objects that they own; events.yaml: their Events.
logs/POD/CONTAINER.log: the newest lines; .previous.log: the log before the last restart.
metrics/POD.txt: as Prometheus scrapes them.

Values of Secrets, and values that look like a password or a token, were replaced by {redacted}.
Still check the files before you send them: they have names and addresses, but no message bodies.

Could not be read:
{missing}
"""

T = TypeVar("T")


class Bundle:
    """The collected `files` by path, redacted; `missing` has what could not be read, and why."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.files: dict[str, str] = {}
        self.missing: list[str] = []
        self._gate = asyncio.Semaphore(PARALLEL)

    async def attempt(self, what: str, ask: Callable[[], Awaitable[T]]) -> T | None:
        """The result, or None and a line in `missing`."""
        try:
            async with self._gate:
                return await ask()
        except PluginError as error:
            self.missing.append(f"{what}: {redact.text(str(error))}")
            return None

    async def view(self, path: str, ask: Callable[[], Awaitable[Report]]) -> None:
        """What a verb says; .json as its document, else its table."""
        report = await self.attempt(path, ask)
        if report is not None:
            form = Form.JSON if path.endswith(".json") else Form.TABLE
            self._add(path, render(form, report.table, report.document))
            self.missing += [f"{path}: {redact.text(str(problem))}" for problem in report.problems]

    async def resource(self, name: str, path: str) -> None:
        """One resource as YAML."""
        body = await self.attempt(f"resources/{name}", lambda: self.session.kube.get(path))
        if body is not None:
            self.add_resource(name, body)

    async def children(self, plural: str, path: str, query: Mapping[str, str]) -> None:
        """Every resource of a kind that a selector finds, one file each."""
        for body in await self.attempt(f"resources/{plural}", lambda: self.session.kube.items(path, query)) or ():
            self.add_resource(f"{plural}/{resources.name_of(body)}", body, kind=plural)

    def add_resource(self, name: str, body: Json, *, kind: str = "") -> None:
        """`kind`: of a list's items, which do not say it themselves."""
        hidden = redact.resource({**body, "kind": "Secret"} if kind == "secrets" else body)
        self._add(f"resources/{name}.yaml", yaml.safe_dump(hidden, sort_keys=False, allow_unicode=True))

    async def events(self, namespace: str, belongs: Callable[[str], bool]) -> None:
        """The namespace's events about objects whose name `belongs`, oldest first."""
        path = resources.core(namespace, "events")
        found = await self.attempt(f"events of {namespace}", lambda: self.session.kube.items(path)) or ()
        about = [redact.resource(body) for body in found if belongs(_about(body))]
        about.sort(key=lambda body: str(body.get("lastTimestamp") or body.get("eventTime") or ""))
        if about:
            dumped = yaml.safe_dump_all(about, sort_keys=False, allow_unicode=True)
            self._add(f"events-{namespace}.yaml", dumped)

    async def log(self, pod: Pod, container: str, lines: int, *, previous: bool) -> None:
        """The newest lines of a container, or of the one before its last restart."""
        path = resources.core(pod.namespace, "pods", pod.name) + "/log"
        query = {"container": container, "tailLines": str(lines), "timestamps": "true"}
        query |= {"previous": "true"} if previous else {}
        name = f"logs/{pod.name}/{container}{'.previous' if previous else ''}.log"
        content = await self.attempt(name, lambda: self.session.kube.text(path, query))
        if content is not None:
            hidden = await in_thread(lambda: redact.text(content[-MAX_FILE:]))
            self._add(name, hidden)

    async def metrics(self, pod: Pod, port: int) -> None:
        """What Prometheus would scrape."""
        name = f"metrics/{pod.name}.txt"
        content = await self.attempt(name, lambda: self._scrape(pod, port))
        if content is not None:
            self._add(name, redact.text(content))

    def write(self, path: Path, subject: str) -> int:
        """Write the zip; its size in bytes. A file that is there is not overwritten.

        Raises:
            CommandRefusedError: it cannot be written.
        """
        missing = "\n".join(f"- {line}" for line in sorted(self.missing)) or "- nothing: all of it is here"
        readme = README.format(subject=subject, version=__version__, redacted=redact.REDACTED, missing=missing)
        try:
            with path.open("xb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, content in sorted({**self.files, "README.txt": readme}.items()):
                    archive.writestr(name, content)
        except FileExistsError as error:
            raise CommandRefusedError(f"{path} is there already: give another name with -o") from error
        except OSError as error:
            raise CommandRefusedError(f"{path} cannot be written: {error}") from error
        return path.stat().st_size

    def _add(self, path: str, content: str) -> None:
        self.files[path] = content

    async def _scrape(self, pod: Pod, port: int) -> str:
        address = await self.session.forwards.address(pod.namespace, pod.name, port)
        timeout = self.session.kube.timeout

        def read() -> str:
            try:
                with urllib.request.urlopen(f"http://{address}/metrics", timeout=timeout) as answer:
                    return str(answer.read(MAX_FILE), errors="replace")
            except OSError as error:
                why = self.session.forwards.problem(address) or error
                raise UnreachableError(f"pod {pod.name} does not answer at port {port}: {why}") from error

        return await in_thread(read)


def _about(event: Json) -> str:
    involved = event.get("involvedObject")
    return str(involved.get("name", "")) if isinstance(involved, Mapping) else ""
