"""What a round is made of: the group's configuration and the faults that may hit it, drawn from a seed. Pure.

A story lists what may happen together without breaking what is promised; within it everything is random. Two runs of
one seed make the same choices; the processes' timing differs.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec


class Strike(NamedTuple):
    """One fault: its name in `faults.FAULTS`, and its own random numbers."""

    name: str
    rng: random.Random


class Story(msgspec.Struct, frozen=True):
    """One kind of round."""

    name: str
    durability: str
    flush: str
    faults: tuple[str, ...]
    """Names of `faults.FAULTS`."""
    first: tuple[str, ...] = ()
    """One of these is among the first three of each round."""
    may_lose: str = ""
    """Why acknowledged messages may be missing at the end; empty: they may not."""
    disks: bool = True
    official: int = 0
    """How many of the replicas are official brokers; those save consumer offsets and copy them every 10 s."""
    broker_config: dict[str, object] = {}

    @property
    def drawn(self) -> int:
        """How many of its faults in turn a round injects, beside one of `first`."""
        return FAULTS_OF_A_ROUND - bool(self.first)


_PROCESSES = (
    *("kill", "kill_half", "kill_master", "kill_successor", "kill_two", "kill_all"),
    *("hang", "hang_all", "stutter", "starved", "stop", "restart_namesrv"),
)
_NETWORK = (
    *("isolate", "one_way", "pair", "slaves_cut", "from_controllers", "from_clients"),
    *("halves", "bridge", "holes", "flap", "reset"),
)
_STARVED = ("controllers_starved", "controllers_stutter")
_CONTROLLERS = (
    *("controller_kill", "controller_hang", "controller_deposed", "controller_stutter"),
    *("controllers_all", "controller_cut"),
    *("controller_wipe", "controller_set_back", "controller_flip"),
    *_STARVED,
)
_SLOW_DISKS = ("slow_sync", "failing_sync", "controller_slow_sync", "controller_failing_sync")
_DISKS = (*_SLOW_DISKS, "disk_full", "all_full", "controller_disk_full")
_DAMAGE = ("wipe_slave", "lose_volume", "set_back", "zero_tail", "flip")
_CLOCKS = ("clock_jump", "clock_skew")
_STRANGERS = ("forged_slave", "forged_notice", "forged_heartbeat", "odd_messages", "noise")

_SYNC_POWER = ("power_one", "power_all", "power_everything", "power_controllers")

_OFFICIAL = (
    *("kill", "kill_master", "hang", "isolate", "from_controllers", "controller_kill", "controller_hang", "stop"),
    *_STARVED,
)
_MIXED = (
    *("kill_half", "kill_two", "stutter", "restart_namesrv", "pair", "slaves_cut", "one_way", "from_clients"),
    *("halves", "bridge", "holes", "flap", "reset", "controller_cut", "controllers_all"),
)
_ALL_ACK: dict[str, object] = {"allAckInSyncStateSet": True, "minInSyncReplicas": 2}
"""What an official broker needs in order to promise what durability=strict does."""

ORDINARY = (*_PROCESSES, *_NETWORK, *_CONTROLLERS, *_DISKS, *_DAMAGE, *_CLOCKS, *_STRANGERS)

STORIES = (
    Story("strict", "strict", "ASYNC_FLUSH", ORDINARY),
    Story(
        "strict-sync-power",
        "strict",
        "SYNC_FLUSH",
        (*_PROCESSES, *_NETWORK, *_SYNC_POWER, *_SLOW_DISKS, *_STARVED, "controllers_all", "odd_messages"),
        first=("power_all", "power_everything"),
    ),
    # At least one member of the SyncStateSet keeps its page cache in each of these.
    Story(
        "strict-async-power",
        "strict",
        "ASYNC_FLUSH",
        (
            *("kill", "hang", "isolate", "power_one", "power_slaves", "power_slaves_kill_master", "power_controllers"),
            "controller_deposed",
            *_STARVED,
        ),
        first=("power_slaves", "power_slaves_kill_master"),
    ),
    Story(
        "relaxed",
        "relaxed",
        "ASYNC_FLUSH",
        (*_PROCESSES, *_NETWORK, *_CONTROLLERS, *_CLOCKS, "odd_messages"),
        may_lose="a relaxed master acknowledges alone, and may be lost alone",
    ),
    Story(
        "all-ack",
        "relaxed",
        "ASYNC_FLUSH",
        (*_PROCESSES, *_STARVED, "from_controllers", "controller_kill", "controller_hang", "slow_sync", "odd_messages"),
        broker_config=_ALL_ACK,
    ),
    Story("official", "strict", "ASYNC_FLUSH", _OFFICIAL, disks=False, official=3, broker_config=_ALL_ACK),
    Story("mixed", "strict", "ASYNC_FLUSH", (*_OFFICIAL, *_MIXED), disks=False, official=1, broker_config=_ALL_ACK),
)


class Plan(msgspec.Struct, frozen=True):
    """One round, drawn."""

    seed: int
    round: int
    story: Story
    controllers: int
    replicas: int
    pause: tuple[float, float]
    """Least and greatest seconds between two faults."""
    turn: int = 0
    """How many rounds of this story came before in the campaign."""

    def strikes(self) -> Iterator[Strike]:
        """Without end: all faults of the story in a random order, then in another one. The rounds of a story share that
        order, and each begins where the one before it has got to on a fast machine: a campaign injects all faults, and
        the rare ones as often as the others. Each fault has its own random numbers, so how many one draws changes
        nothing for the next."""
        rng = self.rng("faults")
        deck = self._deck()
        drawn = self.story.drawn
        begin = list(itertools.islice(deck, self.turn * drawn, (self.turn + 1) * drawn))
        if self.story.first:
            name = rng.choice(self.story.first)
            if name in begin:
                begin.remove(name)
            begin.insert(rng.randrange(3), name)
        for number, name in enumerate(itertools.chain(begin, deck)):
            yield Strike(name, self.rng(f"fault {number}"))

    def _deck(self) -> Iterator[str]:
        for number in itertools.count():
            order = random.Random(f"{self.seed}/{self.story.name}/order {number}")
            yield from order.sample(self.story.faults, len(self.story.faults))

    def rng(self, what: str) -> random.Random:
        """Random numbers for one purpose, independent of how many the others draw."""
        return random.Random(f"{self.seed}/{self.round}/{what}")


FAULTS_OF_A_ROUND = 12
"""Injected in a minute, about."""
SHORT_MINUTES = 10.0
"""A campaign that is shorter has one round of each of these, whatever the time."""
SHORT = ("strict", "strict-sync-power", "strict-async-power")


def draw(seed: int, number: int, names: Sequence[str]) -> Plan:
    """Round `number` of `seed`: each of these stories in turn, beginning anywhere."""
    rng = random.Random(f"{seed}/{number}")
    stories = {story.name: story for story in STORIES}
    story = stories[names[(seed + number) % len(names)]]
    return Plan(
        seed=seed,
        round=number,
        story=story,
        controllers=rng.choice((3, 3, 3, 5)),
        replicas=3,
        pause=(3.0, 8.0) if story.official else rng.choice(((0.3, 2.0), (1.0, 4.0), (0.0, 0.5))),
        turn=number // len(names),
    )
