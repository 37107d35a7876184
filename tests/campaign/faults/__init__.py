"""The faults by name. Each is `async def NAME(nemesis)`: it strikes, waits, and heals what it broke; the group recovers
by itself while the next one strikes. Some faults may not overlap with others, since the promise does not cover both;
they wait until the group is whole: a disk is wiped only while all others are in sync.

    processes.py    kill, hang, stutter, stop
    partitions.py   every shape of partition, connections reset from outside
    controllers.py  the same for controllers, and their stores
    storage.py      slow and failing syncs, full disks, damaged, wiped and set-back stores of replicas
    power.py        power cuts
    clocks.py       jumps and skew
    strangers.py    forged peers, odd messages, noise (hostile.py has their bytes)
"""

import inspect
from collections.abc import Awaitable, Callable
from types import ModuleType

from tests.campaign.faults import clocks, controllers, partitions, power, processes, storage, strangers
from tests.campaign.nemesis import Nemesis


def _faults(module: ModuleType) -> dict[str, Callable[[Nemesis], Awaitable[None]]]:
    return {
        name: function
        for name, function in vars(module).items()
        if inspect.iscoroutinefunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
    }


FAULTS = {
    name: function
    for module in (processes, partitions, controllers, storage, power, clocks, strangers)
    for name, function in _faults(module).items()
}
