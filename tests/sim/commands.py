"""A state machine of the simplest kind: the list of commands it was given, and their running digest."""

import hashlib
from collections.abc import Callable

import msgspec


class CommandList:
    """Implements StateMachine; `digests[i]` covers everything applied up to index i (ReplayEqual)."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []
        self.indexes: list[int] = []
        self.digest = b""

    def apply(self, index: int, command: bytes) -> object:
        self.commands.append(command)
        self.indexes.append(index)
        self.digest = hashlib.blake2b(self.digest + command, digest_size=16).digest()
        return len(self.commands)

    def capture(self) -> Callable[[], bytes]:
        state = (tuple(self.commands), tuple(self.indexes), self.digest)
        return lambda: msgspec.msgpack.encode(state)

    def load(self, snapshot: bytes) -> Callable[[], None]:
        state = msgspec.msgpack.decode(snapshot, type=tuple[list[bytes], list[int], bytes])

        def take_over() -> None:
            self.commands, self.indexes, self.digest = state

        return take_over
