"""Reads a secret that processes share from its file."""

import codecs
from pathlib import Path

from rocketmq_formats.challenge import MIN_SECRET_SIZE
from rocketmq_runtime.config.settings import SettingsError


def read_secret(path: str, key: str) -> bytes:
    """The file's bytes without white space around them, nor an editor's byte order mark; none if `path` is empty.
    `key` is the setting that names it.

    Raises:
        SettingsError: it cannot be read, or is too short.
    """
    if not path:
        return b""
    file = Path(path).expanduser()
    try:
        secret = file.read_bytes().removeprefix(codecs.BOM_UTF8).strip()
    except OSError as error:
        raise SettingsError(f"{key}: cannot read {file}: {error.strerror}") from error
    if len(secret) < MIN_SECRET_SIZE:
        raise SettingsError(
            f"{key}: the secret in {file} has {len(secret)} bytes, at least {MIN_SECRET_SIZE} are needed: "
            "make one with `openssl rand -hex 32`"
        )
    return secret
