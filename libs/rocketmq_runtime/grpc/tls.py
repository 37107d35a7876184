"""Mutual TLS for gRPC ports: server credentials from three files, read again whenever they change.

Called by each door once. Certificates in Kubernetes live for weeks and are replaced in place, so every handshake looks
whether the files are still those that were read; a set that cannot be used is reported and the one before it stays.
"""

import ssl
from pathlib import Path

import grpc
import msgspec
import structlog

from rocketmq_runtime.config.settings import SettingsError

log = structlog.get_logger(__name__)

Stamp = tuple[tuple[int, int, int], ...]


class ServerTls(msgspec.Struct, frozen=True, kw_only=True):
    """The three files; all empty: plaintext."""

    keys: str
    """Of the configuration, without CertFile, KeyFile, CaFile: for errors."""
    cert_file: str
    key_file: str
    ca_file: str


def server_credentials(tls: ServerTls) -> grpc.ServerCredentials | None:
    """What to open the port with; None: plaintext, as no files are configured.

    Raises:
        SettingsError: a file cannot be read, or does not hold what its key says; the text names the key.
    """
    if not tls.cert_file:
        return None
    files = _Files(tls)
    return grpc.dynamic_ssl_server_credentials(
        files.first,
        files.changed,  # type: ignore[arg-type]  # gRPC documents None for "as before", its stubs do not know
        require_client_authentication=True,
    )


class _Files:
    """The three files as they were last read. `changed` is called from gRPC's threads, one handshake at a time."""

    def __init__(self, tls: ServerTls) -> None:
        self._cert_key, self._key_key, self._ca_key = (
            f"{tls.keys}{name}" for name in ("CertFile", "KeyFile", "CaFile")
        )
        self._cert, self._key, self._ca = Path(tls.cert_file), Path(tls.key_file), Path(tls.ca_file)
        self._stamp = self._file_stamps()
        self.first = self._read()

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """New certificates, None without usable ones."""
        stamp = self._file_stamps()
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        try:
            configuration = self._read()
        except SettingsError as error:
            log.warning("gRPC certificates have changed and cannot be used, the old ones stay", reason=str(error))
            return None
        log.info("gRPC certificates renewed", file=str(self._cert))
        return configuration

    def _file_stamps(self) -> Stamp:
        stamps = []
        for path in (self._cert, self._key, self._ca):
            try:
                status = path.stat()
            except OSError:
                stamps.append((0, 0, 0))
            else:
                stamps.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(stamps)

    def _read(self) -> grpc.ServerCertificateConfiguration:
        cert = _content(self._cert_key, self._cert)
        key = _content(self._key_key, self._key)
        ca = _content(self._ca_key, self._ca)
        # gRPC takes anything here and fails at each handshake; Python's ssl says at once what is wrong.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(
                self._cert, self._key, password=""
            )  # "": an encrypted key fails instead of prompting
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"{self._cert_key}, {self._key_key}: {self._cert} and {self._key} are not"
                f" a PEM certificate and its unencrypted key: {error}"
            ) from error
        try:
            context.load_verify_locations(self._ca)
        except (OSError, ValueError) as error:
            raise SettingsError(f"{self._ca_key}: {self._ca} holds no PEM certificate: {error}") from error
        return grpc.ssl_server_certificate_configuration([(key, cert)], root_certificates=ca)


def _content(key: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SettingsError(f"{key}: cannot read {path}: {error.strerror}") from error
