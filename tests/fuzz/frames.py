"""Frames that a stranger may send, from a seed: recorded ones with mutations, and random bytes."""

import random
import struct
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

from tests.paths import GOLDEN_FILES

FOLDERS: Final = ("client", "foreign", "mqadmin", "remoting")
HONEST: Final = {b"broker-a": b"broker-z"}
"""Recorded frames are not about what the honest client uses: anyone may delete that, as in Java."""
EXTREMES: Final = (b"0", b"-1", b"2147483647", b"-2147483648", b"9223372036854775807", b"1e309", b"null", b'"x"', b"[]")
DEEP: Final = b"[" * 5000
HTTP2: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")


@cache
def recorded() -> tuple[bytes, ...]:
    """Requests as real clients, brokers and tools sent them, with their length."""
    frames = []
    for folder in FOLDERS:
        for file in sorted((GOLDEN_FILES / folder).glob("*request*.bin")):
            frame = file.read_bytes()
            for name, other in HONEST.items():
                frame = frame.replace(name, other)
            frames.append(frame)
    return tuple(frames)


def remoting(rng: random.Random) -> Iterator[bytes]:
    """For the ports that speak RocketMQ's protocol."""
    seeds = recorded()
    while True:
        frame = rng.choice(seeds)
        for _ in range(rng.choice((0, 1, 1, 2, 5))):
            frame = rng.choice(MUTATIONS)(rng, frame)
        yield frame


def raw(rng: random.Random, *prefixes: bytes) -> Iterator[bytes]:
    """Random bytes, most of them after one of the `prefixes`."""
    while True:
        begin = rng.choice(prefixes) if prefixes and rng.random() < 0.8 else b""
        yield begin + rng.randbytes(rng.choice((0, 1, 8, 16, 100, 3000)))


def http2(rng: random.Random) -> Iterator[bytes]:
    """For the gRPC ports: HTTP/2 frames of any kind, with random content."""
    while True:
        data = HTTP2
        for _ in range(rng.randint(0, 4)):
            body = rng.randbytes(rng.choice((0, 4, 8, 6 * rng.randint(0, 5), 300)))
            stream = rng.choice((0, 1, 3, 2**31 - 1))
            data += (
                len(body).to_bytes(3)
                + bytes((rng.randrange(11), rng.randrange(256)))
                + struct.pack(">L", stream)
                + body
            )
        yield data


def http(rng: random.Random) -> Iterator[bytes]:
    """For the probe ports."""
    while True:
        path = rng.choice((b"/metrics", b"/readyz", b"/healthz", b"/" + rng.randbytes(rng.choice((3, 9000)))))
        end = rng.choice((b"\r\n\r\n", b"\r\n", b"", b"\r\nAccept: " + rng.randbytes(40) + b"\r\n\r\n"))
        yield rng.choice((b"GET ", b"HEAD ", b"PUT ", b"")) + path + rng.choice((b" HTTP/1.1", b" HTTP/2", b"")) + end


def _flip(rng: random.Random, frame: bytes) -> bytes:
    changed = bytearray(frame)
    for _ in range(rng.choice((1, 3, 20))):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _cut(rng: random.Random, frame: bytes) -> bytes:
    return frame[: rng.randint(0, len(frame))]


def _lie(rng: random.Random, frame: bytes) -> bytes:
    """Another length of the frame, or of its header."""
    at, size = rng.choice((0, 4)), rng.choice((0, 3, 0xFF, 0xFFFF, 0xFF_FFFF, 0x7FFF_FFFF, 0xFFFF_FFFF))
    return frame[:at] + struct.pack(">L", size) + frame[at + 4 :]


def _number(rng: random.Random, frame: bytes) -> bytes:
    """An extreme in the place of a digit."""
    places = [at for at, byte in enumerate(frame) if 48 <= byte <= 57 and at > 8]
    if not places:
        return frame
    at = rng.choice(places)
    return _framed(frame[:at] + rng.choice(EXTREMES) + frame[at + 1 :], len(frame))


def _content(rng: random.Random, frame: bytes) -> bytes:
    """Bytes inside, with right lengths."""
    at = rng.randint(min(8, len(frame)), len(frame))
    inside = rng.choice((rng.randbytes(rng.choice((1, 30, 2000))), DEEP, b"\x00" * 600, b"\xff\xfe", b'{"a":' * 2000))
    return _framed(frame[:at] + inside + frame[at:], len(frame))


def _splice(rng: random.Random, frame: bytes) -> bytes:
    other = rng.choice(recorded())
    return _framed(frame[: len(frame) // 2] + other[len(other) // 2 :], len(frame))


def _framed(frame: bytes, before: int) -> bytes:
    """`frame`, which had `before` bytes, with lengths that include what was added, in its header."""
    if len(frame) < 8:
        return frame
    header = int.from_bytes(frame[5:8]) + len(frame) - before
    return struct.pack(">LB", len(frame) - 4, frame[4]) + (max(header, 0) & 0xFF_FFFF).to_bytes(3) + frame[8:]


MUTATIONS: Final[tuple[Callable[[random.Random, bytes], bytes], ...]] = (
    _flip,
    _cut,
    _lie,
    _number,
    _content,
    _splice,
)
