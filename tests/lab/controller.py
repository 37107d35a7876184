"""Official DLedger controllers, for recordings and comparisons; other servers: `rocketmq_demo.apache.servers`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from rocketmq_demo.apache.processes import SMALL_HEAP, JavaProcess, write_properties
from rocketmq_demo.apache.servers import MIB, Config
from rocketmq_demo.ports import HOST


def start_controller(
    folder: Path,
    *,
    member: str,
    peers: Mapping[str, int],
    group: str = "lab",
    config: Config | None = None,
    options: Sequence[str] = SMALL_HEAP,
) -> JavaProcess:
    """Member `member` (n0, n1, ...) of a DLedger controller group whose ports are `peers`."""
    values: dict[str, object] = {
        "controllerDLegerGroup": group,
        "controllerDLegerPeers": ";".join(f"{name}-{HOST}:{port}" for name, port in peers.items()),
        "controllerDLegerSelfId": member,
        "controllerStorePath": folder / "store",
        "configStorePath": folder / "controller.properties",
        "mappedFileSize": 16 * MIB,
        "bindAddress": HOST,
        **(config or {}),
    }
    file = write_properties(folder / "conf" / "controller.conf", values)
    return JavaProcess(
        f"controller-{member}",
        "org.apache.rocketmq.controller.ControllerStartup",
        ["-c", str(file)],
        folder=folder,
        ports=[peers[member]],
        options=options,
        logging="controller",
    )
