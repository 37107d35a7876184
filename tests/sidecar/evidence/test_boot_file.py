"""Whether a replica's machine may have lost what the replica had acknowledged."""

from pathlib import Path

import pytest

from rocketmq_sidecar.evidence.boot_file import FILE_NAME, BootFile, kernel_boot_id


def life(folder: Path, boot: str, *, sync_flush: bool = False) -> BootFile:
    note = BootFile(folder / FILE_NAME, sync_flush=sync_flush, boot_id=lambda: boot)
    note.begin()
    return note


def test_the_first_start_has_lost_nothing(tmp_path: Path) -> None:
    assert life(tmp_path, "a").unproven is None


def test_a_killed_process_has_lost_nothing(tmp_path: Path) -> None:
    life(tmp_path, "a")
    assert life(tmp_path, "a").unproven is None


def test_a_reset_machine_may_have_lost_what_was_acknowledged(tmp_path: Path) -> None:
    life(tmp_path, "a")
    why = life(tmp_path, "b").unproven
    assert why is not None
    assert "elect-master GROUP POD --force-unclean" in why


def test_a_volume_that_was_away_may_have_lost_what_was_acknowledged(tmp_path: Path) -> None:
    """The machine runs on, so its boot id is the same; what was not synced is gone."""
    for state, lost in (("running", True), ("synced", False), ("ended", False)):
        (tmp_path / FILE_NAME).write_text(f"{state} a\n")
        note = BootFile(tmp_path / FILE_NAME, sync_flush=False, boot_id=lambda: "a")
        note.begin(cached=False)
        assert (note.unproven is not None) is lost


def test_it_stays_so_over_further_starts_until_the_log_is_whole_again(tmp_path: Path) -> None:
    life(tmp_path, "a")
    life(tmp_path, "b")
    again = life(tmp_path, "b")
    assert again.unproven is not None
    again.end()
    again = life(tmp_path, "b", sync_flush=True)
    assert again.unproven is not None
    again.mark_proven()
    assert again.unproven is None
    assert life(tmp_path, "b").unproven is None


def test_after_an_orderly_end_another_machine_finds_everything(tmp_path: Path) -> None:
    life(tmp_path, "a").end()
    assert life(tmp_path, "b").unproven is None


def test_with_sync_flush_everything_is_on_disk(tmp_path: Path) -> None:
    life(tmp_path, "a", sync_flush=True)
    assert life(tmp_path, "b").unproven is None
    assert life(tmp_path, "c").unproven is not None  # the life on b was without


def test_the_caller_reports_whether_an_official_broker_stopped_cleanly(tmp_path: Path) -> None:
    """Another engine may have run since `ended` or `synced` was noted."""
    for earlier in ("running", "synced", "ended"):
        for orderly, whole_size in ((True, True), (False, False)):
            (tmp_path / FILE_NAME).write_text(f"{earlier} a\n")
            note = BootFile(tmp_path / FILE_NAME, sync_flush=False, boot_id=lambda: "b")
            note.begin(orderly=orderly)
            assert (note.unproven is None) is whole_size
            assert life(tmp_path, "b").unproven == note.unproven
    again = BootFile(tmp_path / FILE_NAME, sync_flush=False, boot_id=lambda: "b")
    again.begin(orderly=True)
    assert again.unproven is not None  # an orderly end brings nothing back


@pytest.mark.parametrize("text", [b"", b"running\n", b"\xff\xfe", b"ended a b\n", b"whole a\n"])
def test_a_damaged_file_proves_nothing(tmp_path: Path, text: bytes) -> None:
    (tmp_path / FILE_NAME).write_bytes(text)
    assert life(tmp_path, "a").unproven is not None


def test_the_kernel_names_its_boot() -> None:
    assert kernel_boot_id() == kernel_boot_id() != ""
