"""One network namespace for each node, and a router namespace between them. Packets from one node to another can be
dropped silently, each direction by itself, as by a failing switch: neither end gets an error.

Nothing here leaves the namespaces: there is no route to this machine's own networks.
"""

import ctypes
import itertools
import os
import socket
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)


_PREFIX = "rocketmq-ha-"


def remove_leftovers() -> None:
    """Namespaces of runs that were killed."""
    for path in Path("/run/netns").glob(f"{_PREFIX}*"):
        owner = path.name.removeprefix(_PREFIX).partition("-")[0]
        if not Path(f"/proc/{owner}").exists():
            _ip("netns", "del", path.name)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class Network:
    """Nodes by name, each at an address of its own that never changes."""

    def __init__(self, names: Sequence[str]) -> None:
        """Make the namespaces. Raises RuntimeError where this process may not (it has to be root)."""
        self.prefix = f"{_PREFIX}{os.getpid()}"
        self.addresses = {name: f"10.231.{number}.2" for number, name in enumerate(names)}
        self._cuts: set[tuple[str, str]] = set()
        self._router = self._name("router")
        _ip("netns", "add", self._router)
        self._made = [self._router]
        try:
            _ip("-n", self._router, "link", "set", "lo", "up")
            self._in_router("sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
            for number, name in enumerate(names):
                self._add(number, name)
        except BaseException:
            self.close()
            raise

    def _add(self, number: int, name: str) -> None:
        node = self._name(name)
        _ip("netns", "add", node)
        self._made.append(node)
        _ip("-n", node, "link", "set", "lo", "up")
        _ip("-n", node, "link", "add", "eth0", "type", "veth", "peer", "name", f"v{number}", "netns", self._router)
        _ip("-n", node, "addr", "add", f"10.231.{number}.2/24", "dev", "eth0")
        _ip("-n", self._router, "addr", "add", f"10.231.{number}.1/24", "dev", f"v{number}")
        _ip("-n", self._router, "link", "set", f"v{number}", "up")
        _ip("-n", node, "link", "set", "eth0", "up")
        _ip("-n", node, "route", "add", "default", "via", f"10.231.{number}.1")

    def command(self, name: str) -> list[str]:
        """The prefix of a command that runs in the node and ends when this process does."""
        return ["nsenter", f"--net=/run/netns/{self._name(name)}", "--", "setpriv", "--pdeathsig", "KILL", "--"]

    def enter(self, name: str) -> None:
        """Move this thread, and what it starts, into the node's namespace."""
        handle = os.open(f"/run/netns/{self._name(name)}", os.O_RDONLY)
        try:
            if _LIBC.setns(handle, _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        finally:
            os.close(handle)

    def socket(self, name: str) -> socket.socket:
        """A TCP socket, not yet connected, whose address will be the node's."""
        made: list[socket.socket] = []

        def make() -> None:
            self.enter(name)
            made.append(socket.socket())

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        made[0].setblocking(False)
        return made[0]

    # Partitions

    def cut(self, source: str, target: str) -> None:
        """Drop what `source` sends to `target` from now on."""
        if (source, target) not in self._cuts:
            self._cuts.add((source, target))
            self._rule("add", source, target)

    def split(self, one: Sequence[str], other: Sequence[str]) -> None:
        """Nothing passes between the two sides, in neither direction."""
        for here, there in itertools.product(one, other):
            self.cut(here, there)
            self.cut(there, here)

    def heal(self) -> None:
        """Everything passes again."""
        for source, target in sorted(self._cuts):
            self._rule("del", source, target)
        self._cuts.clear()

    def reset(self, name: str, peer: str) -> bool:
        """Kill the TCP connections between two nodes from outside their processes, as a firewall that answers with a
        reset does; False if this kernel cannot."""
        done = subprocess.run(
            [*self.command(name), "ss", "-t", "-K", "state", "established", "dst", self.addresses[peer]],
            capture_output=True,
            check=False,
        )
        return done.returncode == 0 and b"RTNETLINK" not in done.stderr

    def close(self) -> None:
        """Remove the namespaces; all processes in them must have ended."""
        for name in reversed(self._made):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
        self._made = []

    def _rule(self, verb: str, source: str, target: str) -> None:
        _ip(
            *("-n", self._router, "rule", verb),
            *("from", self.addresses[source], "to", self.addresses[target], "priority", "100", "type", "blackhole"),
        )

    def _name(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def _in_router(self, *command: str) -> None:
        subprocess.run(["nsenter", f"--net=/run/netns/{self._router}", "--", *command], check=True)
