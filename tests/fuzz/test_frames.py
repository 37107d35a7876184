"""The decoders that anybody's bytes reach: they refuse with their own errors, and with no other."""

import random
from itertools import islice

from rocketmq_formats.errors import FormatError, FrameError
from rocketmq_formats.remoting.connection import RemotingConnection
from tests.fuzz import frames

SEED = 20_261_129


def test_the_seed_decides() -> None:
    one, other = (list(islice(frames.remoting(random.Random(SEED)), 50)) for _ in range(2))
    assert one == other
    assert len(frames.recorded()) > 50


def test_every_recorded_frame_is_read() -> None:
    for frame in frames.recorded():
        assert len(RemotingConnection().receive_data(frame)) == 1


def test_whatever_comes_is_a_command_or_refused() -> None:
    rng = random.Random(SEED)
    read = refused = 0
    for frame in islice(frames.remoting(rng), 600):
        connection, size = RemotingConnection(), rng.choice((1, 100, 10_000_000))
        try:
            for at in range(0, len(frame), size):
                read += len(connection.receive_data(frame[at : at + size]))
        except FrameError:
            refused += 1
    assert read > 100
    assert refused > 100
    assert issubclass(FrameError, FormatError)
