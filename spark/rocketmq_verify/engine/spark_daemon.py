"""The process that forks Spark's Python workers, with all their imports done once before the fork.

Spark starts it by name (spark.python.daemon.module, set in `session`), on the driver's machine or in an executor.
Without it every worker imports Arrow and this package again, and Spark's Python from a zip without bytecode.
"""

import gc
import importlib
import sys
from typing import Final

PRELOADED: Final = (
    "pyspark.worker",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.conversion",
    "pyspark.sql.pandas.types",
    "pyspark.sql.pandas.serializers",
    "rocketmq_verify.engine.datasource",
    "rocketmq_verify.sources.file_source",
)
"""gRPC comes with the data source; it starts threads, which a fork would lose, only with its first channel."""


def main() -> None:
    """Import, then run Spark's own daemon until the JVM closes our standard input."""
    # an installed pyspark has bytecode, the zip that Spark puts before it on the path does not
    sys.path[:] = [path for path in sys.path if not path.endswith("pyspark.zip")]
    daemon = importlib.import_module("pyspark.daemon")
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    main()
