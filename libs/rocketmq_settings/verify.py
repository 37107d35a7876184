"""Keys of `rocketmq-verify`. Options of the command line override most of them.

Where Spark runs is Spark's own configuration: sparkMaster and sparkConf here, `spark-defaults.conf` in SPARK_CONF_DIR,
PYSPARK_SUBMIT_ARGS, or spark-submit's arguments.
"""

from typing import Annotated, Final, Literal

import msgspec

from rocketmq_api.log_view import MAX_RANGE
from rocketmq_settings.declare import LogFormat, LogLevel, Settings, key

Days = Annotated[int, msgspec.Meta(ge=0, le=365)]
Engine = Literal["auto", "local", "spark"]
REREAD_DAYS: Final = 7

SMALLEST_CHUNK_SIZE: Final = 4 << 10
LARGEST_CHUNK_SIZE: Final = MAX_RANGE
"""The most that a sidecar digests in one range."""
_POWERS: Final = range(SMALLEST_CHUNK_SIZE.bit_length() - 1, LARGEST_CHUNK_SIZE.bit_length())
CHUNK_SIZES: Final = tuple(f"{1 << power - 20}Mi" if power >= 20 else f"{1 << power - 10}Ki" for power in _POWERS)
"""As Kubernetes writes them."""
CHUNK_SIZE_FORM: Final = f"a power of two from {CHUNK_SIZES[0]} to {CHUNK_SIZES[-1]}"
CHUNK_SIZE: Final = "1Mi"

PATIENCE_SECONDS: Final = 30.0


class VerifyKeys(Settings, frozen=True):
    """Every key of `rocketmq-verify -c FILE`."""

    # What is compared
    broker_cluster_name: Annotated[str, key("Cluster of the group, as in the brokers' configuration.")] = ""
    broker_name: Annotated[str, key("Name of the group; with brokerClusterName it selects the history.")] = ""
    replicas: Annotated[
        str,
        key(
            "`NAME=PLACE;NAME=PLACE`, at least two; a place is a storePathRootDir or `sidecar:HOST:PORT`.",
            default="required, or options",
        ),
    ] = ""
    chunk_size: Annotated[
        str, key(f"Bytes that share a digest: {CHUNK_SIZE_FORM}.", set_by="spec.verification.chunkSize")
    ] = CHUNK_SIZE
    reread_days: Annotated[
        Days,
        key(
            "Within this time every byte is read again, the oldest first; 0: everything in every run.",
            set_by="spec.verification.rereadDays",
        ),
    ] = REREAD_DAYS
    full: Annotated[bool, key("Everything is read again.")] = False
    time_budget_seconds: Annotated[
        float,
        msgspec.Meta(ge=0, le=604_800),
        key(
            "Seconds after which a run ends, and the next one continues where it was; needs historyPath.",
            default="0: a run reads all that it has to",
        ),
    ] = 0.0
    structure: Annotated[bool, key("Checks that new bytes are a chain of sound records.")] = True
    queues: Annotated[bool, key("Checks consume queues and index files against new bytes of the log.")] = True
    allow_unreachable: Annotated[
        bool, key("A run counts as verified if two replicas could be read, even if another could not.")
    ] = False

    # Results
    history_path: Annotated[
        str,
        key("Directory or URI for results and watermarks.", default="none: every run reads everything"),
    ] = ""
    ledger_file: Annotated[
        str,
        key(
            "File with digests of what the log was, instead of those of the history; with it one replica is enough.",
            default="none: those of historyPath",
        ),
    ] = ""
    report_file: Annotated[str, key("HTML report.")] = ""
    namespace: Annotated[str, key("Namespace of the BrokerGroup whose status the run writes.")] = ""
    broker_group: Annotated[str, key("Name of that BrokerGroup.")] = ""

    # Replicas
    rate_limit: Annotated[
        str,
        key(
            "Bytes per second read of each replica.",
            default="0: files without a limit, sidecars as configured there",
            set_by="spec.verification.rateLimit",
        ),
    ] = "0"
    patience_seconds: Annotated[
        float,
        msgspec.Meta(gt=0, le=3600),
        key("Seconds without progress after which a sidecar counts as unreachable."),
    ] = PATIENCE_SECONDS
    tls_cert_file: Annotated[str, key("Certificate (PEM) for sidecars with mutual TLS.", default="none: plaintext")] = (
        ""
    )
    tls_key_file: Annotated[str, key("Key of tlsCertFile.")] = ""
    tls_ca_file: Annotated[str, key("CA that signs the sidecars' certificates.")] = ""

    # The process
    engine: Annotated[
        Engine,
        key(
            "What reads and compares: `local` is this process without Spark, `auto` takes it for up to 4Gi of log "
            "unless sparkMaster, sparkConf or Spark's environment say otherwise."
        ),
    ] = "auto"
    spark_master: Annotated[
        str,
        key(
            "Where Spark runs: `local[*]`, `spark://...`, `k8s://...`.",
            default="Spark's own configuration, else `local[*]`",
        ),
    ] = ""
    spark_conf: Annotated[str, key("`spark.x=y;spark.z=w`, which override all other settings of Spark.")] = ""
    log_format: Annotated[LogFormat, key("Format of the log lines.")] = "console"
    log_level: Annotated[LogLevel, key("Least important level that is logged.")] = "warning"
