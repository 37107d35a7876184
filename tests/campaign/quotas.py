"""Too little processor: a CPU quota for some processes (a control group of either version, as a container's limit
is), or a machine with more work than it has cores for.

`python -m tests.campaign.quotas --percent 10` and `--burners 10` count how often the leader of three idle controllers
changes meanwhile.
"""

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

from rocketmq_demo.controllers import ControllerCluster, ControllerProcess
from rocketmq_demo.ports import PortPool
from rocketmq_demo.processes import OwnedProcess

T = TypeVar("T")

PERIOD = 0.1
"""Seconds: the kernel's usual period, and Kubernetes'. At most 1."""
_ROOTS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))


class Quota:
    """One control group with a quota of its own. Raises OSError where none can be made: this takes root."""

    def __init__(self, name: str) -> None:
        self._root = next(root for root in _ROOTS if (root / "cgroup.procs").exists())
        self._unified = (self._root / "cgroup.controllers").exists()
        self._folder = self._root / f"rocketmq-ha-{os.getpid()}-{name}"
        if self._unified:
            (self._root / "cgroup.subtree_control").write_text("+cpu")
        self._folder.mkdir(exist_ok=True)

    def limit(self, percent: float, period: float = PERIOD) -> None:
        """So much of one core in each period, then nothing until the next one."""
        whole = round(period * 1_000_000)
        quota = round(whole * percent / 100)
        if self._unified:
            (self._folder / "cpu.max").write_text(f"{quota} {whole}")
        else:
            (self._folder / "cpu.cfs_period_us").write_text(str(whole))
            (self._folder / "cpu.cfs_quota_us").write_text(str(quota))

    def add(self, pid: int) -> None:
        """Put the process under the quota."""
        (self._folder / "cgroup.procs").write_text(str(pid))

    def close(self) -> None:
        """Return its processes to the group without a quota."""
        for pid in (self._folder / "cgroup.procs").read_text().split():
            try:
                (self._root / "cgroup.procs").write_text(pid)
            except ProcessLookupError:
                continue
        self._folder.rmdir()


@contextmanager
def starved(processes: Iterable[OwnedProcess], percent: float, period: float = PERIOD) -> Iterator[None]:
    """Each of `processes` gets `percent` of one core."""
    with ExitStack() as stack:
        for process in processes:
            quota = Quota(process.name)
            stack.callback(quota.close)
            quota.limit(percent, period)
            quota.add(process.pid)
        yield


@contextmanager
def burning(count: int) -> Iterator[None]:
    """`count` processes that want a core each."""
    pids: list[int] = []
    try:
        for _ in range(count):
            pid = os.fork()
            if not pid:
                deadline = time.monotonic() + 3600
                while time.monotonic() < deadline and os.getppid() != 1:
                    pass
                os._exit(0)
            pids.append(pid)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@contextmanager
def stuttering(processes: Iterable[OwnedProcess], held_up: tuple[float, float] = (0.05, 1.5)) -> Iterator[None]:
    """Each of `processes` runs for a moment and is stopped for `held_up` seconds, in turns, each in its own time."""
    over = threading.Event()

    def stutter(process: OwnedProcess) -> None:
        rng = random.Random(process.name)
        while not over.is_set():
            process.suspend()
            over.wait(rng.uniform(*held_up))
            process.resume()
            over.wait(rng.uniform(0.02, 1.0))

    with _threads(stutter, processes, over):
        yield


@contextmanager
def asked(cluster: Iterable[ControllerProcess]) -> Iterator[None]:
    """Each controller gets one request after the other, so that it has work to do."""
    over = threading.Event()

    def ask(process: ControllerProcess) -> None:
        while not over.is_set():
            process.metadata(timeout=5.0)

    with _threads(ask, cluster, over):
        yield


@contextmanager
def _threads(work: Callable[[T], None], on: Iterable[T], over: threading.Event) -> Iterator[None]:
    threads = [threading.Thread(target=work, args=(process,)) for process in on]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def terms_led(cluster: Iterable[ControllerProcess]) -> set[int]:
    """Terms that had a leader, from the members' logs."""
    return {
        line["term"]
        for process in cluster
        for text in process.output().splitlines()
        if text.startswith("{") and (line := json.loads(text)).get("event") == "raft role" and line["role"] == "leader"
    }


def _processor_seconds(process: OwnedProcess) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign.quotas", description=__doc__)
    parser.add_argument("--percent", type=float, help="of one core, for each controller")
    parser.add_argument("--period", type=float, default=PERIOD, help="seconds in which that is used up and waited for")
    parser.add_argument("--burners", type=int, default=0, help="other processes that want a core each")
    parser.add_argument("--stutter", action="store_true", help="each is stopped for 0.05 to 1.5 s all the time")
    parser.add_argument("--asked", action="store_true", help="the controllers have work to do")
    parser.add_argument("--learn", type=float, default=20, help="seconds before the leaders are counted")
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster = stack.enter_context(ControllerCluster(folder, ports=stack.enter_context(PortPool())))
        cluster.start()
        cluster.wait_ready()
        if options.percent is not None:
            stack.enter_context(starved(cluster, options.percent, options.period))
        stack.enter_context(burning(options.burners))
        if options.stutter:
            stack.enter_context(stuttering(cluster))
        if options.asked:
            stack.enter_context(asked(cluster))
        began = terms_led(cluster)
        time.sleep(options.learn)
        learned = terms_led(cluster)
        used = {process.member: _processor_seconds(process) for process in cluster}
        time.sleep(options.seconds)
        after = terms_led(cluster)
        print(f"load {os.getloadavg()[0]:.1f}, {options.learn + options.seconds:g} s")
        print(f"leaders while learning: {len(learned - began)}, then per minute: ", end="")
        print(f"{60 * len(after - learned) / options.seconds:.1f}")
        for process in cluster:
            share = (_processor_seconds(process) - used[process.member]) / options.seconds
            print(f"{process.member}: {100 * share:.1f} % of a core")
    return 0


if __name__ == "__main__":
    sys.exit(main())
