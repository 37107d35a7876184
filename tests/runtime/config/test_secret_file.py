"""The file with a secret that processes share."""

from pathlib import Path

import pytest

from rocketmq_runtime.config.secret_file import read_secret
from rocketmq_runtime.config.settings import SettingsError, build_settings
from rocketmq_sidecar.settings import SidecarSettings

KEY = "haReplicationSecretFile"


def test_white_space_around_it_does_not_count(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("  0123456789abcdef\n")
    assert read_secret(str(file), KEY) == b"0123456789abcdef"
    assert read_secret("", KEY) == b""


def test_the_error_of_an_unusable_file_has_the_key_and_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"{KEY}: cannot read .*none: No such file"):
        read_secret(str(tmp_path / "none"), KEY)
    file = tmp_path / "secret"
    file.write_text("0123456789abcde\n")
    with pytest.raises(SettingsError, match=r"15 bytes, at least 16 are needed.*openssl"):
        read_secret(str(file), KEY)


def test_a_sidecar_beside_an_official_broker_has_none() -> None:
    keys = {"controllerAddr": "c:1", "brokerEngine": "apache", KEY: "secret"}
    with pytest.raises(SettingsError, match="official broker"):
        build_settings(SidecarSettings, keys)


def test_an_editors_mark_is_no_part_of_it(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"\xef\xbb\xbf0123456789abcdef\r\n")
    assert read_secret(str(file), KEY) == b"0123456789abcdef"
