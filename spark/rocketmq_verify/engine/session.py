"""The Spark session: quick on a laptop, quiet everywhere, and started while the replicas' states are read.

Called by `job`. Without any configuration of Spark it runs here, `local[*]`: one JVM, a few workers, no cluster. A
configuration (spark-submit's arguments, PYSPARK_SUBMIT_ARGS, SPARK_CONF_DIR/spark-defaults.conf) overrides the settings
made here for speed; so on Kubernetes this process is the driver in client mode, and its executors are pods. The
settings were measured: see docs/verification.md.
"""

import itertools
import logging
import os
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import structlog

from rocketmq_verify.engine.submitted import GATEWAY
from rocketmq_verify.progress import Progress

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

log = structlog.get_logger(__name__)

NAME: Final = "rocketmq-verify"
_LOG_SETTINGS: Final = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
"""

QUICK: Final = {
    # one run of some seconds: compiling, here or in the JVM, costs more than it brings
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.daemon.module": "rocketmq_verify.engine.spark_daemon",
    "spark.python.worker.reuse": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "true",
    # no warehouse, so no catalog
    "spark.sql.catalogImplementation": "in-memory",
}
SHUFFLES: Final = "spark.sql.shuffle.partitions"
_WATCH: Final = 0.5
"""Seconds between two checks of Spark's stages."""
_EXECUTOR_CHECK: Final = 30.0
"""Seconds between two checks for executors."""
_PATIENCE: Final = 10.0
"""Seconds for the JVM to end."""
_LOG_FILE: Final = "LOG4J_CONFIGURATION_FILE"
_LOG_LEVEL: Final = "spark.log.level"
LOCAL: Final = {SHUFFLES: "2", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


Hook: TypeAlias = Callable[["sys.UnraisableHookArgs"], object]
"""`sys.unraisablehook`."""


class SessionError(Exception):
    """Spark could not be started; the text has the reason and what to do."""


class SessionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How Spark is started."""

    master: str | None = None
    """None: the one of spark-submit, else local[*]."""
    conf: Mapping[str, str] = {}
    """Spark's own settings, which override ours."""
    verbose: bool = False
    """The JVM's output goes to standard error."""


class Engine:
    """One Spark session; `start` returns at once, `spark` waits for it."""

    def __init__(self, options: SessionOptions) -> None:
        self.options = options
        self._spark: SparkSession | None = None
        self._made: SparkSession | None = None
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None
        self._began = 0.0
        self.started_seconds = 0.0
        """From `start` until queries could run."""
        self.warm_seconds = 0.0
        """Of these, a first query over no data, after which the next ones are quick."""
        self.trouble = ""
        """What it has been waiting for, at least half a minute."""
        self._folder = Path(tempfile.mkdtemp(prefix="rocketmq-verify-"))
        self.log_file = self._folder / "spark.log"
        """Output of the JVM and Spark's workers, unless `verbose`; deleted by `stop`, unless it is kept."""

    def start(self) -> None:
        """Begin, in a thread of its own; harmless to repeat."""
        if self._thread is not None:
            return
        self._began = time.perf_counter()
        self._thread = threading.Thread(target=self._start, name="spark", daemon=True)
        self._thread.start()

    def spark(self) -> "SparkSession":
        """The session, warm.

        Raises:
            SessionError: Spark did not start.
        """
        assert self._thread is not None
        next_check = self._began + _EXECUTOR_CHECK
        while self._thread.is_alive():
            self._thread.join(0.2)  # a join without a limit could not be interrupted
            if time.perf_counter() > next_check:
                next_check += _EXECUTOR_CHECK
                self._check_executors()
        if self._error is not None or self._spark is None:
            raise SessionError(_why(self._error, self.log_file)) from self._error
        return self._spark

    @property
    def begun(self) -> bool:
        """Whether this run has started Spark."""
        return self._thread is not None

    @property
    def cores(self) -> int:
        """Tasks that may run at the same time."""
        context = self.spark().sparkContext
        return slots(dict(context.getConf().getAll()), context.defaultParallelism)

    @contextmanager
    def watched(self, progress: Progress) -> Iterator[None]:
        """Report how many tasks of the running stages are done."""
        tracker = self.spark().sparkContext.statusTracker()
        end = threading.Event()

        def watch() -> None:
            while not end.wait(_WATCH):
                stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
                total = sum(stage.numTasks for stage in stages if stage is not None)
                if total > 1:
                    progress.step(done, total)

        thread = threading.Thread(target=watch, name="stages", daemon=True)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()

    def stop(self, *, keep_log: bool = False) -> None:
        """End it, whatever its state; harmless to repeat."""
        if self._thread is not None:
            from pyspark import SparkContext  # noqa: PLC0415 - imported by the thread

            sys.unraisablehook = without_lost_sockets(sys.unraisablehook)
            if self._spark is not None:
                with suppress(Exception):  # it ends in any case, and its error explains nothing
                    self._spark.stop()
            gateway = SparkContext._gateway  # noqa: SLF001 - only it has the JVM's process
            SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
            process: Popen[bytes] | None = getattr(gateway, "proc", None)
            if gateway is not None and process is not None:
                with suppress(Exception):
                    gateway.shutdown()
                process.terminate()
                with suppress(TimeoutExpired):
                    process.wait(_PATIENCE)
                if process.stdin is not None:
                    process.stdin.close()
            self._thread = self._spark = None
        if not keep_log:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _check_executors(self) -> None:
        """Warn if none has started: Spark waits for them without end, and reports that only in its own log."""
        made = self._made
        if made is None or str(made.sparkContext.master).startswith("local"):
            return
        there = 0
        with suppress(Exception):  # the JVM has ended, which is reported elsewhere
            there = int(made.sparkContext._jsc.sc().getExecutorMemoryStatus().size())  # noqa: SLF001 - there is no public way
        self.trouble = "no executor has started" if there == 1 else ""  # that one is the driver
        if self.trouble:
            log.warning(
                self.trouble,
                seconds=round(time.perf_counter() - self._began),
                hint="check scheduling and image of its pods: kubectl describe pods -l spark-role=executor",
            )

    def _start(self) -> None:
        try:
            self._made = made = self._session()
            began = time.perf_counter()
            from rocketmq_verify.engine import scan  # noqa: PLC0415 - it needs pyspark, which takes a while to import

            scan.warm_up(made)
            self._spark = made
            now = time.perf_counter()
            self.warm_seconds, self.started_seconds = now - began, now - self._began
        except Exception as error:  # noqa: BLE001 - `spark` raises it
            self._error = error

    def _session(self) -> "SparkSession":
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - 0.3 s, in this thread
        from pyspark.sql import SparkSession  # noqa: PLC0415

        from rocketmq_verify.engine.datasource import register  # noqa: PLC0415

        given, has_master = _given(os.environ)
        settings = session_settings(self.options, given, has_master=has_master)
        if GATEWAY in os.environ and not (self.options.verbose or {_LOG_LEVEL} & given or _has_log_settings()):
            settings.setdefault(_LOG_LEVEL, "ERROR")  # that JVM ran before us, and would log its every step
        if settings.get("spark.master", "").startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = SparkSession.builder.appName(NAME)
        for key, value in settings.items():
            builder = builder.config(key, value)
        if not self.options.verbose:
            logging.getLogger("py4j").setLevel(logging.CRITICAL)
        with _LogSettings(self._folder / "log4j2.properties", "warn" if self.options.verbose else "error"):
            if SparkContext._gateway is None:  # noqa: SLF001 - there is no other way to say where the JVM writes
                self._launch(SparkConf(loadDefaults=False).setAll(list(settings.items())))
            spark = builder.getOrCreate()
        register(spark)
        return spark

    def _launch(self, conf: "SparkConf") -> None:
        """Start the JVM; its output, and that of all it starts, goes to the log file."""
        from pyspark import SparkContext  # noqa: PLC0415
        from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

        with self.log_file.open("ab") as log_file:
            kept = {} if self.options.verbose else {"stdout": log_file, "stderr": log_file}
            gateway = launch_gateway(conf, popen_kwargs=kept)  # type: ignore[no-untyped-call]  # as it is published
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001


def without_lost_sockets(
    hook: Callable[["sys.UnraisableHookArgs"], object],
) -> Callable[["sys.UnraisableHookArgs"], object]:
    """`hook` without what pyspark's objects say when they are collected after their JVM has ended: results that were
    read in part, after Ctrl-C or SIGTERM."""

    def kept(told: "sys.UnraisableHookArgs") -> None:
        of = str(getattr(told.object, "__module__", ""))
        if not (isinstance(told.exc_value, OSError) and of.partition(".")[0] == "pyspark"):
            hook(told)

    return kept


def session_settings(options: SessionOptions, given: AbstractSet[str], *, has_master: bool) -> dict[str, str]:
    """Spark's settings.

    Args:
        given: keys that Spark's own configuration sets, which override those that only save time.
        has_master: that configuration names a master too.
    """
    settings = {key: value for key, value in QUICK.items() if key not in given}
    master = options.master or (None if has_master else "local[*]")
    if master is not None:
        settings["spark.master"] = master
    if master is not None and master.startswith("local"):
        settings |= LOCAL
    elif SHUFFLES not in given:
        settings[SHUFFLES] = "16"
    return settings | dict(options.conf)


def slots(conf: Mapping[str, str], now: int) -> int:
    """Tasks that may run at the same time, by Spark's settings and how many may `now`: with dynamic allocation more
    executors come during a run, and a limit of bytes per second is for all of them together."""
    most = 0
    if conf.get("spark.dynamicAllocation.enabled") == "true":
        executors, cores = conf.get("spark.dynamicAllocation.maxExecutors", "0"), conf.get("spark.executor.cores", "1")
        with suppress(ValueError):
            most = int(executors) * int(cores)
    return max(now, most, 1)


def _given(environ: Mapping[str, str]) -> tuple[frozenset[str], bool]:
    """Keys that the user has set for Spark, and whether they name a master."""
    if GATEWAY in environ:  # spark-submit has started the JVM, which started this process
        from pyspark import SparkConf, SparkContext  # noqa: PLC0415

        SparkContext._ensure_initialized()  # noqa: SLF001 - before that a SparkConf is empty
        keys = {key for key, _ in SparkConf().getAll()}
        return frozenset(keys), "spark.master" in keys
    arguments = shlex.split(environ.get("PYSPARK_SUBMIT_ARGS", ""))
    keys = {value.partition("=")[0] for flag, value in itertools.pairwise(arguments) if flag in {"--conf", "-c"}}
    try:
        lines = (Path(environ.get("SPARK_CONF_DIR", "")) / "spark-defaults.conf").read_text().splitlines()
    except OSError:
        lines = []
    keys |= {line.replace("=", " ").split()[0] for line in lines if line.strip().startswith("spark.")}
    return frozenset(keys), "spark.master" in keys or "--master" in arguments


def _has_log_settings() -> bool:
    """Whether the user has configured the JVM's log."""
    folder = os.environ.get("SPARK_CONF_DIR")
    return _LOG_FILE in os.environ or bool(folder and (Path(folder) / "log4j2.properties").exists())


class _LogSettings:
    """Log4j's settings for a JVM that is started within; those in SPARK_CONF_DIR win."""

    def __init__(self, path: Path, level: str) -> None:
        self._path, self._level = path, level
        self._set = False

    def __enter__(self) -> None:
        if _has_log_settings():
            return
        self._path.write_text(_LOG_SETTINGS.format(level=self._level))
        os.environ[_LOG_FILE] = str(self._path)
        self._set = True

    def __exit__(self, *error: object) -> None:
        if self._set:
            del os.environ[_LOG_FILE]


def _why(error: Exception | None, log_file: Path) -> str:
    lines = [] if not log_file.exists() else log_file.read_text(errors="replace").splitlines()
    last_line = next((line for line in reversed(lines) if line.strip() and not line.startswith((" ", "\t"))), "")
    if any(
        "JAVA_HOME is not set" in line or "java: not found" in line or "java: No such file" in line for line in lines
    ):
        return "Spark needs Java 17 or later: install it (openjdk-17-jre-headless), or set JAVA_HOME"
    message = [line for line in str(error or "").splitlines() if line.strip()] or [type(error).__name__]
    # py4j's own first line names the call; the next one is Java's
    first = (
        message[1].removeprefix(": ")
        if message[0].startswith("An error occurred while calling") and message[1:]
        else message[0]
    )
    return f"Spark did not start: {first}" + (f" ({last_line.strip()})" if last_line else "")
