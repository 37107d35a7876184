"""A proxy between real RocketMQ processes that keeps one sample of every kind of frame it sees.

`capture` puts it in front of Java servers: they listen on 127.0.0.2, the proxy on the same port of 127.0.0.1, which is
the address the cluster believes in, so nothing in a frame has to be rewritten. It parses headers on its own, apart from
the product's codec, because what it keeps is there to judge that codec.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FRONT, BACK = "127.0.0.1", "127.0.0.2"
LARGEST = 24_000
VARIANTS = 3
LANGUAGES = ["JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER"]


@dataclass(frozen=True)
class Frame:
    """A remoting frame with its header taken apart."""

    raw: bytes
    serialize: str
    code: int
    flag: int
    opaque: int
    language: str
    version: int
    remark: str | None
    ext: dict[str, str] | None
    body: bytes

    @property
    def is_response(self) -> bool:
        return bool(self.flag & 1)


def parse(raw: bytes) -> Frame:
    """Take one whole frame, length included, apart."""
    length = int.from_bytes(raw[5:8], "big")
    header, body = raw[8 : 8 + length], raw[8 + length :]
    if raw[4] == 0:
        h = json.loads(header)
        return Frame(
            raw,
            "JSON",
            h["code"],
            h["flag"],
            h["opaque"],
            h["language"],
            h["version"],
            h.get("remark"),
            h.get("extFields"),
            body,
        )
    code, language, version, opaque, flag, size = struct.unpack_from(">hbhiii", header)
    at = 17 + size
    remark = header[17:at].decode() if size else None
    (left,) = struct.unpack_from(">i", header, at)
    at += 4
    end, ext = at + left, {}
    while at < end:
        (size,) = struct.unpack_from(">h", header, at)
        key = header[at + 2 : at + 2 + size].decode()
        at += 2 + size
        (size,) = struct.unpack_from(">i", header, at)
        ext[key] = header[at + 4 : at + 4 + size].decode()
        at += 4 + size
    return Frame(raw, "ROCKETMQ", code, flag, opaque, LANGUAGES[language], version, remark, ext or None, body)


def split(buffer: bytearray) -> Iterator[Frame]:
    """Take whole frames off the front of `buffer`."""
    while len(buffer) >= 4 and len(buffer) >= 4 + (size := int.from_bytes(buffer[:4], "big")):
        raw = bytes(buffer[: 4 + size])
        del buffer[: 4 + size]
        yield parse(raw)


@dataclass
class Samples:
    """The kinds of frames seen so far, in the folder that holds them."""

    folder: Path
    names: dict[int, str]
    version: str
    index: list[dict[str, Any]] = field(default_factory=list)
    seen: set[tuple[object, ...]] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, frame: Frame, request_code: int, obtained: str, provoked_by: dict[str, Any] | None = None) -> None:
        """Store the frame unless one like it is there: same code, keys, result, encoding and presence of a body."""
        name = self.names.get(request_code)
        if name is None or len(frame.raw) > LARGEST:
            return
        result = frame.code if frame.is_response else None
        kind = (request_code, frame.is_response, result, frame.serialize)
        keys = tuple(sorted(frame.ext)) if frame.ext is not None else None
        detail = (*kind, frame.flag, keys, bool(frame.body), (frame.remark or "")[:24])
        with self.lock:
            nth = 1 + sum(1 for entry in self.seen if entry[: len(kind)] == kind)
            if detail in self.seen or nth > VARIANTS:
                return
            self.seen.add(detail)
            direction = "response" if frame.is_response else "request"
            parts = [str(request_code), name, direction]
            parts += [str(result)] if result else []
            parts += ["oneway"] if frame.flag & 2 else []
            parts += ["rocketmq"] if frame.serialize == "ROCKETMQ" else []
            parts += [str(nth)] if nth > 1 else []
            file = "-".join(parts) + ".bin"
            (self.folder / file).write_bytes(frame.raw)
            self.index.append(
                {
                    "file": file,
                    "code": request_code,
                    "name": name,
                    "direction": direction,
                    "serialize_type": frame.serialize,
                    "rocketmq_version": self.version,
                    "obtained": obtained,
                    **({"provoked_by": provoked_by} if provoked_by else {}),
                    "header": {
                        "code": frame.code,
                        "language": frame.language,
                        "version": frame.version,
                        "opaque": frame.opaque,
                        "flag": frame.flag,
                        "remark": frame.remark,
                        "ext": frame.ext,
                    },
                    "body_length": len(frame.body),
                }
            )

    def save(self) -> None:
        self.index.sort(key=lambda entry: (entry["code"], entry["file"]))
        (self.folder / "index.json").write_text(json.dumps(self.index, indent=1, ensure_ascii=False) + "\n")


class Proxy:
    """Listens on FRONT, dials BACK, same port; ends with `close`."""

    def __init__(self, port: int, name: str, samples: Samples) -> None:
        self.port, self.name, self.samples = port, name, samples
        self.listener = socket.create_server((FRONT, port), backlog=64)
        threading.Thread(target=self._accept, name=f"proxy-{port}", daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                try:
                    far = socket.create_connection((BACK, self.port), timeout=3)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                asked: dict[tuple[bool, int], int] = {}
                for source, target, inward in ((near, far, True), (far, near, False)):
                    threading.Thread(target=self._pump, args=(source, target, inward, asked), daemon=True).start()

    def _pump(
        self, source: socket.socket, target: socket.socket, inward: bool, asked: dict[tuple[bool, int], int]
    ) -> None:
        buffer = bytearray()
        with suppress(OSError):
            while data := source.recv(65536):
                buffer += data
                for frame in split(buffer):  # before it is passed on: the answer must find the question noted
                    self._note(frame, inward, asked)
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()

    def _note(self, frame: Frame, inward: bool, asked: dict[tuple[bool, int], int]) -> None:
        if frame.is_response:
            code = asked.pop((not inward, frame.opaque), None)
            if code is None:
                return
            who = "answered by" if not inward else "answered by a client of"
        else:
            code, who = frame.code, "sent to" if inward else "sent by"
            asked[inward, frame.opaque] = code
        self.samples.keep(frame, code, f"{who} the Java {self.name}")


def ask(port: int, code: int, ext: dict[str, str] | None = None, body: bytes = b"", *, host: str = BACK) -> Frame:
    """Send a request of our own making (always with a JSON header) and return what Java says."""
    header = {
        "code": code,
        "flag": 0,
        "language": "JAVA",
        "opaque": 1,
        "serializeTypeCurrentRPC": "JSON",
        "version": 479,
    }
    text = json.dumps({**header, **({} if ext is None else {"extFields": ext})}).encode()
    with socket.create_connection((host, port), timeout=10) as connection:
        connection.sendall(struct.pack(">II", 4 + len(text) + len(body), len(text)) + text + body)
        buffer = bytearray()
        while True:
            data = connection.recv(65536)
            if not data:
                raise ConnectionError(f"port {port} closed the connection instead of answering {code}")
            buffer += data
            for frame in split(buffer):
                if frame.is_response and frame.opaque == 1:
                    return frame
