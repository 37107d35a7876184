"""A Kubernetes API server of its own on loopback: etcd and kube-apiserver, no kubelet, no controllers.

Enough to see how an operator does with many resources at once. What a user asked is taken from the audit log:
the server counts the calls and not the one who makes them.
"""

import json
import os
import shutil
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rocketmq_demo.ports import HOST, PortPool

START_SECONDS = 60.0
AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: [operator]
- level: None
"""


class KubernetesUnavailableError(Exception):
    """etcd or kube-apiserver are not installed here."""


class KubeApi:
    """One API server that runs; users `admin` and `operator` may do everything."""

    def __init__(self, folder: Path, address: str) -> None:
        self.address = address
        self._folder = folder

    def kubeconfig(self, user: str) -> Path:
        """Of `admin` or `operator`."""
        path = self._folder / f"{user}.kubeconfig"
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": {"server": self.address, "insecure-skip-tls-verify": True}}],
                    "users": [{"name": user, "user": {"token": user}}],
                    "contexts": [{"name": "c", "context": {"cluster": "c", "user": user}}],
                    "current-context": "c",
                }
            )
        )
        return path

    def request(self, method: str, path: str, body: object = None, kind: str = "application/json") -> dict[str, object]:
        """One call as admin; the answer's JSON. Raises urllib.error.HTTPError."""
        asked = urllib.request.Request(
            self.address + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": "Bearer admin", "Content-Type": kind},
        )
        with urllib.request.urlopen(asked, timeout=30, context=_trusting()) as answer:
            decoded: dict[str, object] = json.load(answer)
            return decoded

    def asked(self, user: str = "operator") -> list[tuple[str, str]]:
        """Verb and path of every call that `user` has made until now and that was answered."""
        calls = []
        for line in (self._folder / "audit.log").read_text().splitlines():
            event = json.loads(line)
            if event["user"]["username"] == user and event["stage"] == "ResponseComplete":
                calls.append((event["verb"], event["requestURI"]))
        return calls


@contextmanager
def kube_api(folder: Path, ports: PortPool) -> Iterator[KubeApi]:
    """An empty API server with its own etcd, ended with the context.

    Raises:
        KubernetesUnavailableError: a binary is missing, or the server does not start.
    """
    folder.mkdir(parents=True)
    (folder / "policy.yaml").write_text(AUDIT_POLICY)
    (folder / "tokens.csv").write_text("admin,admin,1,system:masters\noperator,operator,2,system:masters\n")
    subprocess.run(["openssl", "genrsa", "-out", folder / "sa.key", "2048"], check=True, capture_output=True)
    first = ports.block()
    etcd, peer, secure = (f"http://{HOST}:{first}", f"http://{HOST}:{first + 1}", first + 2)
    commands: Mapping[str, list[str]] = {
        "etcd": [
            *("--data-dir", str(folder / "etcd"), "--listen-client-urls", etcd, "--advertise-client-urls", etcd),
            *(
                "--listen-peer-urls",
                peer,
                "--initial-advertise-peer-urls",
                peer,
                "--initial-cluster",
                f"default={peer}",
            ),
            # Nothing here is to survive the machine, and its disk is not what is measured.
            *("--unsafe-no-fsync", "--log-level", "error"),
        ],
        "kube-apiserver": [
            *("--etcd-servers", etcd, "--secure-port", str(secure), "--bind-address", HOST),
            *("--cert-dir", str(folder / "certificates"), "--token-auth-file", str(folder / "tokens.csv")),
            *("--service-account-key-file", str(folder / "sa.key"), "--service-account-signing-key-file"),
            *(str(folder / "sa.key"), "--service-account-issuer", "https://kubernetes.default.svc"),
            *("--authorization-mode", "RBAC", "--disable-admission-plugins", "ServiceAccount"),
            *("--audit-policy-file", str(folder / "policy.yaml"), "--audit-log-path", str(folder / "audit.log")),
            *("--audit-log-mode", "blocking", "--service-cluster-ip-range", "10.96.0.0/16"),
        ],
    }
    started: list[subprocess.Popen[bytes]] = []
    try:
        for name, arguments in commands.items():
            with (folder / f"{name}.log").open("wb") as output:
                started.append(subprocess.Popen([_binary(name), *arguments], stdout=output, stderr=output))
        api = KubeApi(folder, f"https://{HOST}:{secure}")
        _wait_ready(api, started)
        yield api
    finally:
        for process in reversed(started):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _binary(name: str) -> str:
    cache = Path(os.environ.get("K8S_LOCAL_CACHE", Path.home() / ".cache" / "k8s-local")) / "bin"
    found = shutil.which(name, path=f"{cache}:{os.environ.get('PATH', '')}")
    if found is None:
        raise KubernetesUnavailableError(f"{name} is not on PATH and not in {cache}: build or install Kubernetes")
    return found


def _wait_ready(api: KubeApi, started: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{api.address}/readyz", timeout=5, context=_trusting()).close()
        except (OSError, urllib.error.URLError) as error:
            if time.monotonic() > deadline or any(process.poll() is not None for process in started):
                raise KubernetesUnavailableError(f"the API server does not start: {error}") from error
            time.sleep(0.1)
        else:
            return


def _trusting() -> ssl.SSLContext:
    # The server makes its own certificate at each start; it is on loopback and ours.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
