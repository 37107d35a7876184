"""Replicas' logs as their sources would describe them, for tests of what needs no bytes."""

from __future__ import annotations

from collections.abc import Sequence

from rocketmq_formats.store.epoch_file import EpochList
from rocketmq_verify.domain.model import ReplicaLog, ReplicaName

SIZE = 1000


def log(
    name: str,
    epochs: Sequence[tuple[int, int]] = ((1, 0),),
    end: int = 1000,
    confirm: int | None = None,
    *,
    begin: int = 0,
    lacks: Sequence[int] = (),
    broker_id: int | None = None,
    strict: bool = False,
    size: int = SIZE,
    master: bool = False,
) -> ReplicaLog:
    return ReplicaLog(
        name=ReplicaName(name),
        broker_id=ord(name[0]) if broker_id is None else broker_id,
        min_offset=begin,
        confirm_offset=end if confirm is None else confirm,
        max_offset=end,
        segment_size=size,
        segments=tuple(start for start in range(begin - begin % size, end, size) if start not in lacks),
        epochs=EpochList.of(epochs),
        strict=strict,
        master=master,
    )
