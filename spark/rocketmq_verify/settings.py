"""The verification's settings: its keys (`rocketmq_settings.verify`), the checks across them, and what follows."""

from rocketmq_api.client_tls import ClientTls
from rocketmq_settings.verify import CHUNK_SIZE_FORM, LARGEST_CHUNK_SIZE, SMALLEST_CHUNK_SIZE, VerifyKeys
from rocketmq_verify.sizes import parse_size


class VerifySettings(VerifyKeys, frozen=True):
    """Every key of `rocketmq-verify -c FILE`."""

    def __post_init__(self) -> None:
        tls = (self.tls_cert_file, self.tls_key_file, self.tls_ca_file)
        if any(tls) and not all(tls):
            raise ValueError("tlsCertFile, tlsKeyFile and tlsCaFile go together")
        for key, text in (("chunkSize", self.chunk_size), ("rateLimit", self.rate_limit)):
            try:
                parse_size(text)
            except ValueError as error:
                raise ValueError(f"{key}: {error}") from error
        chunk = parse_size(self.chunk_size)
        if not SMALLEST_CHUNK_SIZE <= chunk <= LARGEST_CHUNK_SIZE or chunk & (chunk - 1):
            raise ValueError(f"chunkSize: {self.chunk_size} is not {CHUNK_SIZE_FORM}")
        if self.time_budget_seconds and not self.history_path:
            raise ValueError("timeBudgetSeconds needs historyPath: without it no run can continue another one")
        self.conf()

    @property
    def tls(self) -> ClientTls | None:
        """For sidecars; None: plaintext."""
        if not self.tls_cert_file:
            return None
        return ClientTls(cert_file=self.tls_cert_file, key_file=self.tls_key_file, ca_file=self.tls_ca_file)

    def conf(self) -> dict[str, str]:
        """sparkConf as key -> value.

        Raises:
            ValueError: a part of it is not spark.KEY=VALUE.
        """
        found: dict[str, str] = {}
        for part in filter(None, (part.strip() for part in self.spark_conf.split(";"))):
            key, equals, value = part.partition("=")
            if not equals or not key.startswith("spark."):
                raise ValueError(f"sparkConf: {part!r} is not spark.KEY=VALUE")
            found[key.strip()] = value.strip()
        return found
