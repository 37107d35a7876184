"""Configuration of `rocketmq-verify`: what a CronJob's ConfigMap sets, in Java properties form; `ROCKETMQ_<KEY>` in the
environment and then the command line (`cli`) are over it.

Where Spark runs is Spark's own configuration: sparkMaster and sparkConf here, `spark-defaults.conf` in SPARK_CONF_DIR,
PYSPARK_SUBMIT_ARGS, or spark-submit's arguments; see `session`.
"""

from typing import Annotated, Literal

import msgspec

from rocketmq_api.channels import ClientTls
from rocketmq_runtime.settings import Settings
from rocketmq_verify.domain.chunks import LARGEST_CHUNK_SIZE, SMALLEST_CHUNK_SIZE
from rocketmq_verify.sizes import parse_size

Fraction = Annotated[float, msgspec.Meta(ge=0, le=1)]


class VerifySettings(Settings, frozen=True, kw_only=True):
    """Every key, with its default."""

    broker_cluster_name: str = ""
    """With brokerName, whose history it is."""
    broker_name: str = ""
    """As in the brokers' configuration; `--group` sets it."""
    replicas: str = ""
    """`NAME=PLACE`, separated by `;`: a storePathRootDir, or `sidecar:HOST:PORT`. On Kubernetes names are pods'."""
    chunk_size: str = "1Mi"
    """Bytes that are compared as one; a power of two from 4Ki to 64Mi."""
    sample: Fraction = 0.01
    """Which part of what earlier runs compared is read again."""
    full: bool = False
    """Read everything again."""
    structure: bool = True
    """Check that what is new is a chain of sound records; through sidecars only a sample of it."""
    queues: bool = True
    """Check consume queues against what is new of the log, where files are read."""
    history_path: str = ""
    """Where results and watermarks are kept: a directory or a URI. Empty: nowhere, so every run reads everything."""
    report_file: str = ""
    """HTML report; empty: none."""
    rate_limit: str = "0"
    """Bytes per second that are read of each replica; 0: files without a limit, a sidecar as it is configured."""
    allow_unreachable: bool = False
    """Whether a run counts as verified if a replica could not be read, while two could."""
    patience_seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 30.0
    """Without any progress, after which a sidecar counts as unreachable."""
    tls_cert_file: str = ""
    """For sidecars with mutual TLS (PEM), with the next two; empty: plaintext."""
    tls_key_file: str = ""
    tls_ca_file: str = ""
    namespace: str = ""
    """Of the BrokerGroup whose status is written; empty: none is."""
    broker_group: str = ""
    """Its name."""
    spark_master: str = ""
    """`local[*]`, `spark://...`, `k8s://...`; empty: what Spark's own configuration says, else local[*]."""
    spark_conf: str = ""
    """Spark's settings, `spark.x=y` separated by `;`, over all others."""
    log_format: Literal["console", "json"] = "console"
    log_level: Literal["debug", "info", "warning", "error"] = "warning"

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
            raise ValueError(f"chunkSize: {self.chunk_size} has to be a power of two from 4Ki to 64Mi")
        self.conf()

    @property
    def tls(self) -> ClientTls | None:
        """For sidecars."""
        if not self.tls_cert_file:
            return None
        return ClientTls(cert_file=self.tls_cert_file, key_file=self.tls_key_file, ca_file=self.tls_ca_file)

    def conf(self) -> dict[str, str]:
        """sparkConf, taken apart.

        Raises:
            ValueError: a part of it is none.
        """
        found: dict[str, str] = {}
        for part in filter(None, (part.strip() for part in self.spark_conf.split(";"))):
            key, equals, value = part.partition("=")
            if not equals or not key.startswith("spark."):
                raise ValueError(f"sparkConf: {part!r} is not spark.KEY=VALUE")
            found[key.strip()] = value.strip()
        return found
