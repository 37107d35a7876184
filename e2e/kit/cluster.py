"""kubectl for tests: `Cluster` is what the fixture `cluster` gives them (e2e/README.md).

Waiting is by watches with deadlines, never by sleeping: `wait` for what kubectl can express, `until` for the rest.
"""

import json
import os
import re
import selectors
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any

from kubernetes.client import ApiClient
from kubernetes.client.exceptions import ApiException
from kubernetes.config import new_client_from_config
from urllib3.exceptions import HTTPError

from tests.gate.patience import patient

Resource = Mapping[str, Any]
"""A Kubernetes resource as JSON."""

CALL_SECONDS = 180.0
"""For calls that do not say how long they may take."""
NAMESPACE_SECONDS = 120
"""For a namespace to end with everything in it."""
SHOWN = 2000
"""Characters of a resource in the message of a time-out."""


class KubectlError(RuntimeError):
    """kubectl ended with an error; the message is what it said."""


class Cluster:
    """One cluster, and the namespaces that tests made in it."""

    def __init__(self, name: str, *, kubectl: str, kubeconfig: Path) -> None:
        self.name, self.kubeconfig = name, kubeconfig
        self.namespaces: dict[str, str] = {}
        """Those that are there, with their scope, module or session."""
        self._kubectl = kubectl
        self._serial = 0

    def kubectl(self, *arguments: str, input: str | None = None, timeout: float = CALL_SECONDS) -> str:  # noqa: A002 - as subprocess has it
        """Standard output of one call.

        Raises:
            KubectlError: it failed, or took longer than `timeout` seconds.
        """
        try:
            done = subprocess.run(
                self.command(*arguments), input=input, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise KubectlError(f"kubectl {' '.join(arguments)}: no end within {timeout:.0f} s") from error
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def command(self, *arguments: str) -> list[str]:
        """The command line of a call, for processes that a test holds itself."""
        return [self._kubectl, f"--kubeconfig={self.kubeconfig}", *arguments]

    def json(self, *arguments: str) -> Any:
        """`kubectl ... -o json`, decoded."""
        return json.loads(self.kubectl(*arguments, "-o", "json"))

    def read(self, path: str, **query: str) -> Any:
        """What the API server has at a path, for what is asked again and again: a call of kubectl takes 0.14 s of a
        processor, this one a hundredth of that.

        Raises:
            KubectlError: it refuses, or is away.
        """
        try:
            request = self._api.param_serialize(
                "GET", path, query_params=list(query.items()), header_params={}, auth_settings=["BearerToken"]
            )
            answer = self._api.call_api(*request[:4], _request_timeout=CALL_SECONDS)
            content: bytes = answer.response.data
        except (HTTPError, ApiException, OSError) as error:
            raise KubectlError(f"GET {path}: {error}") from error
        if answer.status != HTTPStatus.OK:
            raise KubectlError(f"GET {path}: {answer.status} {content.decode(errors='replace')}")
        return json.loads(content)

    @cached_property
    def _api(self) -> ApiClient:
        client: ApiClient = new_client_from_config(str(self.kubeconfig))
        return client

    def server(self) -> str:
        """The API server's address, as seen from here."""
        return self.kubectl("config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}")

    # Namespaces

    def namespace(self, *, scope: str = "module", level: str = "restricted") -> str:
        """Make a namespace that enforces a Pod Security Standard, and wait until pods can be made in it.

        It is deleted at the end of the test module; with scope="session" it stays as long as the cluster.
        """
        self._serial += 1
        name = f"e2e-{_module()}-{self._serial}"
        labels = {
            "app.kubernetes.io/part-of": "rocketmq-ha-e2e",
            "pod-security.kubernetes.io/enforce": level,
            "pod-security.kubernetes.io/warn": level,
        }
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
        self.delete_namespaces(name)  # of an earlier session that ended without output
        self.kubectl("create", "-f", "-", input=json.dumps(body))
        self.namespaces[name] = scope
        self.kubectl("-n", name, "wait", "--for=create", "serviceaccount/default", "--timeout=30s")
        return name

    def delete_namespaces(self, *names: str) -> None:
        """Delete them with all they hold, and wait for that."""
        if names:
            patience = f"--timeout={NAMESPACE_SECONDS}s"
            self.kubectl("delete", "namespace", *names, "--ignore-not-found", patience, timeout=NAMESPACE_SECONDS + 10)
        for name in names:
            self.namespaces.pop(name, None)

    # Waiting

    def wait(self, namespace: str, resource: str, condition: str, *, timeout: float = 60.0) -> None:
        """`kubectl wait` for `kind/name`, which may be made only later; `condition` is what --for takes, such as
        `condition=Ready`, `delete` or `jsonpath={.status.phase}=Running`."""
        began, timeout = time.monotonic(), patient(timeout)
        if condition != "delete":
            self.kubectl(
                "-n", namespace, "wait", "--for=create", resource, f"--timeout={timeout:.0f}s", timeout=timeout + 10
            )
        left = max(timeout - (time.monotonic() - began), 1.0)
        self.kubectl(
            "-n", namespace, "wait", f"--for={condition}", resource, f"--timeout={left:.0f}s", timeout=left + 10
        )

    def until(
        self, namespace: str, resource: str, happened: Callable[[Resource], bool], what: str, *, timeout: float = 60.0
    ) -> Resource:
        """Watch `kind/name` until it looks as wanted, and return it; it may be made only later.

        Raises:
            TimeoutError: with `what` was waited for, and the resource as it was last.
        """
        last: Resource = {}
        for event in self._watch(namespace, resource, time.monotonic() + patient(timeout)):
            last = {} if event["type"] == "DELETED" else event["object"]
            if last and happened(last):
                return last
        shown = json.dumps({**last, "metadata": None} if last else "there is none")[:SHOWN]
        raise TimeoutError(f"waited {timeout:.0f} s for {what} of {resource} in {namespace}: {shown}")

    def _watch(self, namespace: str, resource: str, deadline: float) -> Iterator[dict[str, Any]]:
        """Events of one resource until the deadline; a broken watch is restarted and repeats all of them."""
        kind, _, name = resource.partition("/")
        arguments = ["-n", namespace, "get", kind, f"--field-selector=metadata.name={name}", "-o", "json"]
        while time.monotonic() < deadline:
            process = subprocess.Popen(
                self.command(*arguments, "--watch", "--output-watch-events"),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            try:
                yield from _lines(process, deadline)
            finally:
                process.kill()
                process.communicate()
            time.sleep(min(0.2, max(deadline - time.monotonic(), 0.0)))  # the server was away: do not storm it

    @contextmanager
    def port_forward(self, namespace: str, target: str, port: int) -> Iterator[int]:
        """A port of 127.0.0.1 that leads to `port` of `target` (`pod/name`, `service/name`)."""
        arguments = ["-n", namespace, "port-forward", "--address=127.0.0.1", target, f":{port}"]
        with subprocess.Popen(
            self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            try:
                assert process.stdout is not None
                first = process.stdout.readline()
                found = re.match(r"Forwarding from 127\.0\.0\.1:(\d+)", first)
                if found is None:
                    raise KubectlError(f"kubectl {' '.join(arguments)}: {first.strip() or 'ended without output'}")
                # It reports every connection: the pipe must be read, or it blocks.
                threading.Thread(target=process.stdout.read, daemon=True).start()
                yield int(found[1])
            finally:
                process.kill()


def _module() -> str:
    """Of the test that runs now, as names of Kubernetes may be."""
    path = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0]
    return re.sub("[^a-z0-9]+", "-", Path(path).stem.removeprefix("test_").lower()).strip("-")[:40] or "by-hand"


def _lines(process: subprocess.Popen[bytes], deadline: float) -> Iterator[dict[str, Any]]:
    """JSON documents, one a line, from a process, until it ends or the deadline is there."""
    assert process.stdout is not None
    descriptor = process.stdout.fileno()
    os.set_blocking(descriptor, False)
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0 and selector.select(left):
            chunk = os.read(descriptor, 1 << 20)
            if not chunk:
                return
            *lines, rest = (rest + chunk).split(b"\n")
            yield from (json.loads(line) for line in lines if line)
