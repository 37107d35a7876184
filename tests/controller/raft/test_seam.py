"""What is relied on in PySyncObj, pinned: an upgrade has to be read, not slept through."""

import hashlib
import inspect

import pytest
from pysyncobj import SyncObj
from pysyncobj.syncobj import _COMMAND_TYPE
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

from rocketmq_controller.raft.machine import RaftMachine
from rocketmq_controller.raft.seam import NO_OP, REGULAR, UTILITY_MESSAGES
from tests.controller.raft.raft_kit import Lone

INHERITED = (
    "_SyncObj__deleteEntriesFrom",
    "_SyncObj__deleteEntriesTo",
    "_SyncObj__getCurrentLogIndex",
    "_SyncObj__getEntries",
    "_SyncObj__onBecomeLeader",
    "_SyncObj__onNodeConnected",
    "_SyncObj__onNodeDisconnected",
    "_SyncObj__setCurrentTerm",
    "_SyncObj__setState",
    "_applyCommand",
    "doTick",
)
"""PySyncObj's methods that run as they are, directly or through super()."""

OVERRIDDEN = (
    "_SyncObj__applyLogEntries",
    "_SyncObj__doApplyCommand",
    "_SyncObj__generateRaftTimeout",
    "_SyncObj__onBecomeLeader",
    "_SyncObj__onLeaderChanged",
    "_SyncObj__onMessageReceived",
    "_SyncObj__onNodeConnected",
    "_SyncObj__onNodeDisconnected",
    "_SyncObj__sendAppendEntries",
    "_SyncObj__tryLogCompaction",
    "_checkCommandsToApply",
    "_onTick",
    "addNodeToCluster",
    "removeNodeFromCluster",
    "setCodeVersion",
    "transferLeadership",
)
"""What is replaced; a new version that renames one would silently bring its own back."""

DIGEST = "3a9561b162259bd0"
"""Of the sources of all of the above and the constructor, in PySyncObj 0.3.17. When it changes: read what changed, then
move it."""


def test_the_version_is_the_one_that_was_read() -> None:
    assert VERSION == "0.3.17"


@pytest.mark.parametrize("name", sorted({*INHERITED, *OVERRIDDEN}))
def test_the_names_exist(name: str) -> None:
    assert callable(getattr(SyncObj, name))


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_the_overrides_are_in_force(name: str) -> None:
    assert getattr(RaftMachine, name) is not getattr(SyncObj, name)


def test_the_sources_are_the_ones_that_were_read() -> None:
    names = sorted({*INHERITED, *OVERRIDDEN, "__init__"})
    text = "".join(inspect.getsource(getattr(SyncObj, name)) for name in names) + inspect.getsource(Transport)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == DIGEST


def test_nothing_that_runs_reads_the_clock_or_dice_or_pickles() -> None:
    """All of PySyncObj's methods that the machine can reach; those it replaces, or refuses, do not count."""
    forbidden = {"monotonicTime", "random", "time", "pickle", "loads", "dumps"}
    allowed = {"_SyncObj__onBecomeLeader"}  # notes times that nothing of what runs looks at
    for name in set(INHERITED) - allowed:
        method = getattr(SyncObj, name)
        assert not forbidden & set(method.__code__.co_names), name


def test_the_kinds_of_commands_are_pysyncobjs() -> None:
    assert (REGULAR[0], NO_OP[0]) == (_COMMAND_TYPE.REGULAR, _COMMAND_TYPE.NO_OP)


def test_pysyncobjs_utility_messages_are_out_of_reach() -> None:
    lone = Lone()
    assert lone.post._onUtilityMessageCallbacks == {}
    source = inspect.getsource(SyncObj.__init__)
    assert source.count("setOnUtilityMessageCallback") == len(UTILITY_MESSAGES)


@pytest.mark.parametrize("call", ["addNodeToCluster", "removeNodeFromCluster", "setCodeVersion", "transferLeadership"])
def test_pysyncobjs_ways_to_put_pickles_into_the_log_are_closed(call: str) -> None:
    with pytest.raises(NotImplementedError):
        getattr(Lone().machine, call)(None)
