"""What a replica has noted as acknowledged is known after its log lost it: the verification reports it."""

from pathlib import Path

from rocketmq_sidecar.evidence.acked_offset_file import FILE_NAME, AckedOffsetFile
from tests.sidecar.replication.replica_kit import Replica


async def test_a_log_that_ends_before_what_was_acknowledged(tmp_path: Path) -> None:
    replica = Replica(tmp_path, 1)
    noted = AckedOffsetFile(tmp_path / FILE_NAME)
    noted.open()
    noted.raise_to(5000)
    noted.sync()
    noted.close()
    await replica.start()
    try:
        replication = replica.replication
        assert (replication.max_offset, replication.confirm_offset, replication.noted_offset) == (0, 0, 5000)
    finally:
        await replica.stop()
