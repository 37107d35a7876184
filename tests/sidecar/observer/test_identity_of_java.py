"""IdentityForever, as far as it can be watched: what an official broker's identity and epoch files may turn into."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rocketmq_formats.broker_identity import BrokerIdentity
from rocketmq_formats.store.epoch_file import EpochList, encode_epochs
from rocketmq_sidecar.domain.observing.identity import ObservedReplica, find_identity, wrong_group
from rocketmq_sidecar.observer.files import ReplicaFiles
from tests.sidecar.observer.fakes import CLUSTER, GROUP, keep_identity, settings

ME = BrokerIdentity(CLUSTER, GROUP, 2)


@pytest.mark.parametrize(
    ("data", "known", "identity", "trouble"),
    [
        (None, None, None, None),
        (b"C#broker-a#2", None, ME, None),
        (b"C#broker-a#2", ME, ME, None),
        (None, ME, ME, "is missing: this replica was C#broker-a#2"),
        (b"C#broker-a#3", ME, ME, "says brokerId 3, and this replica was C#broker-a#2"),
        (b"C#broker-b#2", None, None, "belongs to C#broker-b"),
        (b"C#broker-a#", ME, ME, "damaged"),
        (b"C#broker-a#", None, None, "getSyncStateSet"),
    ],
)
def test_identity_never_changes(
    data: bytes | None, known: BrokerIdentity | None, identity: BrokerIdentity | None, trouble: str | None
) -> None:
    found = find_identity(data, known=known, cluster_name="C", broker_name="broker-a", path="/s/i", note="/s/note")
    assert found.identity == identity
    assert (found.trouble is None) == (trouble is None)
    assert (trouble or "") in (found.trouble or "")
    wanted = identity if trouble is None and identity != known else None
    assert found.to_save(known) == wanted


def test_another_brokers_port() -> None:
    assert wrong_group("C", "b", wanted=("C", "b"), address="x:1") is None
    assert "x:1 belongs to C#other, not to C#b" in (wrong_group("C", "other", wanted=("C", "b"), address="x:1") or "")


def test_identity_is_noted_and_known_after_a_restart(tmp_path: Path) -> None:
    files = ReplicaFiles(settings(tmp_path))
    files.reload()
    assert (files.identity, files.trouble) == (None, None)
    keep_identity(tmp_path, 2)
    files.reload()
    assert files.identity == ME
    (tmp_path / "brokerIdentity").unlink()
    files = ReplicaFiles(settings(tmp_path))
    files.reload()
    assert files.identity == ME


def test_what_is_wrong_counts_when_it_is_seen_twice(tmp_path: Path) -> None:
    """Java deletes and writes its identity in place."""
    files = ReplicaFiles(settings(tmp_path))
    keep_identity(tmp_path, 2)
    files.reload()
    (tmp_path / "brokerIdentity").write_bytes(b"C#bro")
    files.reload()
    assert (files.identity, files.trouble) == (ME, None)
    with capture_logs() as logged:
        files.reload()
        files.reload()
    assert "damaged" in (files.trouble or "")
    assert [one["log_level"] for one in logged] == ["error"]
    keep_identity(tmp_path, 2)
    files.reload()
    assert files.trouble is None


def test_damaged_epoch_file_is_reported(tmp_path: Path) -> None:
    files = ReplicaFiles(settings(tmp_path))
    path, backup = tmp_path / "epochFileCheckpoint", tmp_path / "epochFileCheckpoint.bak"
    path.write_bytes(encode_epochs(EpochList.of([(1, 0), (3, 100)])))
    files.reload()
    assert [one.epoch for one in files.epochs] == [1, 3]
    path.write_bytes(b"2\n0\n3-100\n1-0\n")  # not growing
    for _ in range(2):
        files.reload()
    assert "and its backup are damaged" in (files.epochs_trouble or "")
    assert [one.epoch for one in files.epochs] == [1, 3]
    backup.write_bytes(encode_epochs(EpochList.of([(1, 0)])))
    for _ in range(2):
        files.reload()
    assert "use its backup" in (files.epochs_trouble or "")
    assert files.trouble is None, "the broker serves, and knows its epochs"


def test_damaged_note_is_no_note(tmp_path: Path) -> None:
    (tmp_path / ".sidecar.observed").write_bytes(b"{")
    files = ReplicaFiles(settings(tmp_path))
    for _ in range(2):
        files.reload()
    assert files.damaged is not None
    assert "remove it" in (files.trouble or "")
    (tmp_path / ".sidecar.observed").unlink()
    files.reload()
    assert (files.damaged, files.trouble, files.observed) == (None, None, ObservedReplica())
