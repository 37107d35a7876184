"""Spark's settings, and who wins."""

import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from structlog.testing import capture_logs

from rocketmq_verify.engine import session
from rocketmq_verify.engine.session import QUICK, SHUFFLES, Engine, SessionOptions, session_settings
from rocketmq_verify.engine.submitted import JvmStream


def test_alone_it_runs_here() -> None:
    settings = session_settings(SessionOptions(), frozenset(), has_master=False)
    assert settings["spark.master"] == "local[*]"
    assert settings["spark.driver.host"] == "127.0.0.1"
    assert settings.items() >= QUICK.items()


def test_spark_s_own_configuration_wins(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text("# ours\nspark.ui.enabled true\n\nspark.driver.memory=1g\n")
    given, has_master = session._given(
        {
            "SPARK_CONF_DIR": str(tmp_path),
            "PYSPARK_SUBMIT_ARGS": "--master k8s://x --conf spark.driver.host=there pyspark-shell",
        }
    )
    assert given == {"spark.ui.enabled", "spark.driver.memory", "spark.driver.host"}
    assert has_master
    settings = session_settings(SessionOptions(), given, has_master=has_master)
    assert not settings.keys() & {"spark.master", "spark.ui.enabled", "spark.driver.host"}
    assert settings[SHUFFLES] == "16"


def test_the_user_s_own_words_win_over_all() -> None:
    options = SessionOptions(master="spark://there:7077", conf={"spark.ui.enabled": "true"})
    settings = session_settings(options, frozenset({"spark.ui.enabled"}), has_master=True)
    assert settings["spark.master"] == "spark://there:7077"
    assert settings["spark.ui.enabled"] == "true"
    assert "spark.driver.host" not in settings


def test_executors_that_may_come_are_reckoned_with() -> None:
    dynamic = {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "4"}
    assert session.slots({}, 0) == 1
    assert session.slots({}, 2) == 2
    assert session.slots({**dynamic, "spark.executor.cores": "2"}, 2) == 8
    assert session.slots({**dynamic, "spark.dynamicAllocation.enabled": "false"}, 2) == 2
    assert session.slots({"spark.dynamicAllocation.enabled": "true"}, 2) == 2, "without an end of their own"


def test_spark_submit_s_standard_error_is_its_own() -> None:
    written: list[str] = []
    print("one", file=JvmStream(written.append), flush=True)
    assert "".join(written) == "one\n"


def test_output_to_an_ended_jvm_is_dropped() -> None:
    def gone(text: str) -> None:
        raise ConnectionError(text)

    print("one", file=JvmStream(gone), flush=True)


def test_why_spark_did_not_start_is_java_s_own_sentence(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_text("ERROR the master has no worker\n\tat java.base/java.lang.Thread.run(Thread.java:840)\n")
    error = RuntimeError("An error occurred while calling None.x.Session.\n: x.SparkException: killed\n\tat x.y(z)")
    why = session._why(error, log)
    assert why == "Spark did not start: x.SparkException: killed (ERROR the master has no worker)"


def test_nothing_given() -> None:
    assert session._given({}) == (frozenset(), False)


@pytest.mark.parametrize(("master", "there", "told"), [("k8s://x", 1, 1), ("k8s://x", 2, 0), ("local[2]", 1, 0)])
def test_a_driver_without_executors_warns(monkeypatch: pytest.MonkeyPatch, master: str, there: int, told: int) -> None:
    """Spark counts the driver, too."""
    spark = MagicMock()
    spark.sparkContext.master = master
    spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size.return_value = there
    engine = Engine(SessionOptions())
    monkeypatch.setattr(engine, "_made", spark)
    with capture_logs() as logs:
        engine._check_executors()
    assert len(logs) == told
    assert engine.trouble == ("no executor has started" if told else "")
    engine.stop()


@pytest.mark.parametrize(
    ("module", "error", "told"),
    [
        ("pyspark.util", BrokenPipeError(32, "Broken pipe"), 0),
        ("pyspark.util", ValueError("a bug"), 1),
        ("rocketmq_verify.job", BrokenPipeError(32, "Broken pipe"), 1),
    ],
)
def test_results_that_were_read_in_part_end_silently(
    monkeypatch: pytest.MonkeyPatch, module: str, error: Exception, told: int
) -> None:
    def __del__(self: object) -> None:  # noqa: N807 - as pyspark's
        raise error

    __del__.__module__ = module
    heard: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", session.without_lost_sockets(heard.append))
    iterable = type("Iterable", (), {"__del__": __del__})()
    del iterable
    assert len(heard) == told
