"""What we rely on in PySyncObj, pinned: an upgrade fails here until the changes have been read."""

import hashlib
import inspect
import re
from pathlib import Path

import pytest
from pysyncobj import SyncObj
from pysyncobj.syncobj import _COMMAND_TYPE
from pysyncobj.transport import Transport
from pysyncobj.version import VERSION

from rocketmq_controller.raft.consensus import pysyncobj_adapter
from rocketmq_controller.raft.consensus.machine import RaftMachine
from rocketmq_controller.raft.consensus.pysyncobj_adapter import NO_OP, REGULAR, UTILITY_MESSAGES, LogAdapter
from tests.controller.raft.raft_kit import Lone

RUN = (
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
"""PySyncObj's methods that run as they are (docs/architecture.md has the list with reasons)."""

OVERRIDDEN = (
    "_SyncObj__generateRaftTimeout",
    "_SyncObj__onMessageReceived",
    "_SyncObj__onNodeConnected",
    "_SyncObj__onNodeDisconnected",
    "_SyncObj__sendAppendEntries",
    "_onTick",
    "addNodeToCluster",
    "removeNodeFromCluster",
    "setCodeVersion",
    "transferLeadership",
)
"""What the methods above, the constructor and the transport call; a new version that renames one would silently bring
its own back."""

REPLACED = (
    "_SyncObj__applyLogEntries",
    "_SyncObj__doApplyCommand",
    "_SyncObj__onLeaderChanged",
    "_SyncObj__tryLogCompaction",
    "_checkCommandsToApply",
)
"""What only the overridden methods call: ours do the same work under their own names."""

DIGEST = "3a9561b162259bd0"
"""Of the sources of all of the above and the constructor, in PySyncObj 0.3.17. When it changes: read what changed, then
move it."""


def test_the_version_is_the_one_that_was_read() -> None:
    assert VERSION == "0.3.17"


@pytest.mark.parametrize("name", sorted({*RUN, *OVERRIDDEN, *REPLACED}))
def test_the_names_exist(name: str) -> None:
    assert callable(getattr(SyncObj, name))


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_the_overrides_are_in_force(name: str) -> None:
    assert getattr(RaftMachine, name) is not getattr(SyncObj, name)


def test_only_one_module_uses_mangled_names() -> None:
    raft = Path(inspect.getfile(pysyncobj_adapter)).parent.parent
    users = [path.name for path in raft.rglob("*.py") if "_SyncObj__" in path.read_text()]
    assert users == ["pysyncobj_adapter.py"]


def test_the_sources_are_the_ones_that_were_read() -> None:
    names = sorted({*RUN, *OVERRIDDEN, *REPLACED, "__init__"})
    text = "".join(inspect.getsource(getattr(SyncObj, name)) for name in names) + inspect.getsource(Transport)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == DIGEST


def test_what_runs_calls_only_what_runs_or_is_overridden() -> None:
    for name in RUN:
        called = {
            other for other in getattr(SyncObj, name).__code__.co_names if callable(getattr(SyncObj, other, None))
        }
        # The queue is never full: `propose` refuses before.
        assert called <= {*RUN, *OVERRIDDEN, "_SyncObj__callErrCallback"}, name


def test_the_log_has_all_that_is_called_of_it() -> None:
    calls = "".join(inspect.getsource(getattr(SyncObj, name)) for name in RUN)
    for name in set(re.findall(r"__raftLog\.(\w+)", calls)):
        assert name in vars(LogAdapter), name


def test_nothing_that_runs_reads_the_clock_or_dice_or_pickles() -> None:
    forbidden = {"monotonicTime", "random", "time", "pickle", "loads", "dumps"}
    allowed = {"_SyncObj__onBecomeLeader"}  # notes times that nothing of what runs looks at
    for name in set(RUN) - allowed:
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
