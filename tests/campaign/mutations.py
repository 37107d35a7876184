"""Defects that are planted into a copy of the product, to prove that the campaign finds them.

A mutant is a copy of one package with one change to its text. The processes of a round load it instead of the package.
`make campaign CAMPAIGN_ARGS=--mutations` runs rounds of each mutation's story until a promise is broken.
"""

import importlib.util
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

SECONDS: Final = 600.0
"""Within which a mutation has to be found."""


class Mutation(NamedTuple):
    """One rule that is taken away. `before` is in the text of `module` exactly once, and `after` replaces it."""

    rule: str
    module: str
    before: str
    after: str
    story: str


MUTATIONS: Final[Mapping[str, Mutation]] = {
    "acknowledge before replication": Mutation(
        "a send is answered when every member of the SyncStateSet has it",
        "rocketmq_broker.domain.role",
        "            return 0\n        return self.acked_offset\n",
        "            return 0\n        return 1 << 62\n",
        "strict",
    ),
    "elect outside the set": Mutation(
        "only a member of the SyncStateSet is elected",
        "rocketmq_controller.domain.requests.policy",
        "_among(group, group.sync_state_set, view, preferred, proven=True)",
        "_among(group, group.replicas, view, preferred)",
        "relaxed",
    ),
    "skip the fsync of the log": Mutation(
        "SYNC_FLUSH: a message is on the disk before it is acknowledged",
        "rocketmq_store.log.segment",
        "            os.fdatasync(self._fd)\n        except OSError:\n",
        "            pass\n        except OSError:\n",
        "strict-sync-power",
    ),
    "skip the fsync of the journal": Mutation(
        "a controller acknowledges an entry when it is on its disk",
        "rocketmq_controller.raft.storage.segments",
        "        self.filesystem.fdatasync(self.handle)\n        self.segment.end += len(frame)\n",
        "        self.segment.end += len(frame)\n",
        "strict-sync-power",
    ),
    "forget the epochs": Mutation(
        "a slave truncates its log to the end of the last epoch that it shares with its master",
        "rocketmq_sidecar.domain.replication.truncate",
        "    point = _shared_end(ours, max_offset, theirs, master.max_offset)\n",
        "    point = _shared_end(ours, max_offset, theirs, master.max_offset) and min(max_offset, master.max_offset)\n",
        "strict",
    ),
    "cut by content": Mutation(
        "the bytes that a producer wrote do not decide whether a record is torn",
        "rocketmq_store.log.commit_log",
        "        if doubt is Doubt.NONE:\n            return False\n",
        "        if doubt is Doubt.NONE:\n            return bytes(512) in bytes(record.body(segment.view))\n",
        "strict-sync-power",
    ),
    "answer without a lease": Mutation(
        "a leading controller answers while no other one can have been elected",
        "rocketmq_controller.raft.consensus.elections",
        "        return self.state == LEADER and (now < self._lease_until or self.log.standing.sole)\n",
        "        return self.state == LEADER\n",
        "strict-async-power",
    ),
    "deliver early": Mutation(
        "a delayed message comes when its delay is over",
        "rocketmq_broker.domain.consuming.arrivals",
        "        self._delay = delay\n",
        "        self._delay = delay * 9 // 10\n",
        "strict",
    ),
    "commit before replication": Mutation(
        "a consumer offset is answered when every member of the SyncStateSet has it",
        "rocketmq_broker.tables.waiting_commits",
        "        if len(self._waiting) == 1 and self._problem(changes) is None:\n",
        "        if self._waiting:\n",
        "strict",
    ),
}


def plant(mutation: Mutation, folder: Path) -> None:
    """Write the changed package into `folder`, which comes first in PYTHONPATH then. Raises ValueError if the text to
    change is not there exactly once."""
    package, _, _ = mutation.module.partition(".")
    source = _source(package)
    shutil.copytree(source, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    place = folder / Path(*mutation.module.split(".")).with_suffix(".py")
    place.write_text(changed(mutation, place.read_text()))


def changed(mutation: Mutation, text: str) -> str:
    """The text of the module with the defect. Raises ValueError."""
    if text.count(mutation.before) != 1:
        raise ValueError(f"{mutation.module} does not have this text exactly once: {mutation.before!r}")
    return text.replace(mutation.before, mutation.after)


def text_of(module: str) -> str:
    """The text of a module of the product."""
    package, _, rest = module.partition(".")
    return (_source(package) / Path(*rest.split(".")).with_suffix(".py")).read_text()


def _source(package: str) -> Path:
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent
