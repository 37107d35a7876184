"""`rocketmq-verify`: one run, its results, its exit code.

Exit codes: 0 aligned, 1 a mismatch was found, 2 usage, configuration, or input that cannot be read,
3 not verified (too few replicas could be read, one was unreachable, Spark did not start), 4 a mismatch was found and
the time was up (the next run reads the rest), 130 Ctrl-C or SIGTERM.
"""

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from rocketmq_runtime import logs
from rocketmq_runtime.command_line import EXIT_USAGE
from rocketmq_runtime.config.settings import SettingsError, report_unknown
from rocketmq_verify.options import PROGRAM, Options, parse, request_of
from rocketmq_verify.sources.source import SpecError

if TYPE_CHECKING:
    from rocketmq_verify.run import Run

EXIT_UNVERIFIED: Final = 3
EXIT_INTERRUPTED: Final = 130
SHOWN_LINES: Final = 60
"""Lines of Spark's log."""


class _FailedError(Exception):
    """The run came to no verdict."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    try:
        options = parse(arguments)
    except (SettingsError, SpecError, ValueError) as error:
        return _refused(str(error), EXIT_USAGE)
    if options is None:
        return 0
    logs.configure(options.settings.log_format, "debug" if options.verbose else options.settings.log_level)
    report_unknown(options.unknown_keys, str(options.config))
    signal.signal(signal.SIGTERM, _interrupted)
    began = time.monotonic()
    try:
        run = verify(options)
        code = run.verdict.exit_code
        _publish(options, run, "", began)
        _print(options, run)
        if options.settings.report_file and not _write_report(Path(options.settings.report_file), run):
            code = code or EXIT_USAGE
    except _FailedError as error:
        _publish(options, None, str(error), began)
        return _refused(str(error), error.code)
    except KeyboardInterrupt as error:
        why = f" ({error})" if str(error) else ""
        _publish(options, None, f"interrupted, or not done in time{why}: no verdict", began)
        kept = "what its last finished leg has read is kept" if options.settings.history_path else "nothing is kept"
        return _refused(f"interrupted: no verdict, and {kept} of this run", EXIT_INTERRUPTED)
    except BrokenPipeError:
        # The reader of our output has gone; Python must not fail again when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_INTERRUPTED
    return code


def verify(options: Options) -> "Run":
    """One run.

    Raises:
        _FailedError: there is no verdict.
        KeyboardInterrupt: its text is what the run waited for, if that is known.
    """
    from rocketmq_verify import job  # noqa: PLC0415 - --help need not wait for Arrow
    from rocketmq_verify.domain.planning.identities import StrangersError  # noqa: PLC0415
    from rocketmq_verify.domain.planning.lineage import SegmentSizeError  # noqa: PLC0415
    from rocketmq_verify.engine.session import Engine, SessionError  # noqa: PLC0415
    from rocketmq_verify.history.folders import HistoryError  # noqa: PLC0415
    from rocketmq_verify.progress import NoProgress, Watched  # noqa: PLC0415

    request = request_of(options)
    engine = Engine(request.spark)
    keep_log = False
    try:
        if options.quiet:
            return job.run(request, engine, NoProgress())
        with Watched() as progress:
            return job.run(request, engine, progress)
    except (SpecError, StrangersError, SegmentSizeError, HistoryError) as error:
        raise _FailedError(str(error), EXIT_USAGE) from error
    except KeyboardInterrupt:
        raise KeyboardInterrupt(engine.trouble) from None
    except SessionError as error:
        keep_log = True
        _show_log(options, engine.log_file)
        raise _FailedError(f"{error}; its log is {engine.log_file}", EXIT_UNVERIFIED) from error
    except Exception as error:  # Spark's own are of many kinds
        if options.verbose:
            raise
        keep_log = engine.begun
        _show_log(options, engine.log_file)
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        who = f"Spark failed: {first}; its log is {engine.log_file}" if engine.begun else f"the run failed: {first}"
        raise _FailedError(f"{who}, --verbose shows all", EXIT_UNVERIFIED) from error
    finally:
        engine.stop(keep_log=keep_log)


def _show_log(options: Options, path: Path) -> None:
    """Print the end of Spark's log: a pod's file is lost when the pod ends."""
    if options.settings.broker_group and path.exists():
        lines = path.read_text(errors="replace").splitlines()[-SHOWN_LINES:]
        print("\n".join(lines), file=sys.stderr)


def _print(options: Options, run: "Run") -> None:
    from rocketmq_verify.report import json_report, text_report  # noqa: PLC0415

    if options.output == "json":
        sys.stdout.write(json_report.encode(run, plan=options.plan).decode() + "\n")
    else:
        sys.stdout.write(text_report.text(run, plan=options.plan))
    sys.stdout.flush()


def _write_report(path: Path, run: "Run") -> bool:
    from rocketmq_verify.report import html_report  # noqa: PLC0415 - draws, which takes a second to import

    try:
        path.write_text(html_report.page(run), encoding="utf-8")
    except OSError as error:
        _refused(f"no report: {path}: {error.strerror or error}", EXIT_USAGE)
        return False
    return True


def _publish(options: Options, run: "Run | None", problem: str, began: float) -> None:
    """Write the result to the BrokerGroup, if one is configured."""
    settings = options.settings
    if not (settings.namespace and settings.broker_group):
        return
    from rocketmq_verify.report import kube_status  # noqa: PLC0415
    from rocketmq_verify.report.left_out import left_out  # noqa: PLC0415

    if run is None:
        outcome = kube_status.failure(problem, full=settings.full)
    else:
        outcome = kube_status.outcome_of(
            run.verdict, oldest=run.oldest, unseen=left_out(run), history_error=run.history_error
        )
    kube_status.publish(settings.namespace, settings.broker_group, outcome, seconds=time.monotonic() - began)


def _refused(message: str, code: int) -> int:
    print(f"{PROGRAM}: {message}", file=sys.stderr)
    return code


def _interrupted(number: int, frame: object) -> NoReturn:
    del number, frame
    raise KeyboardInterrupt
