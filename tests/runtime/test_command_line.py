"""The arguments of a server, before anything of it is loaded."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from rocketmq_runtime.command_line import EXIT_USAGE, CommandLine, read_arguments
from rocketmq_runtime.version import __version__


def read(*arguments: str) -> CommandLine:
    return read_arguments("rocketmq-some", "Serves something.", example="some.conf", arguments=arguments)


def ended(arguments: Sequence[str]) -> int:
    with pytest.raises(SystemExit) as end:
        read(*arguments)
    assert isinstance(end.value.code, int)
    return end.value.code


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], CommandLine(None, print_config=False)),
        (["-c", "some.conf"], CommandLine(Path("some.conf"), print_config=False)),
        (["-p", "--config", "/etc/some.conf"], CommandLine(Path("/etc/some.conf"), print_config=True)),
        (["--config=some.conf", "--print-config"], CommandLine(Path("some.conf"), print_config=True)),
        (["-pc", "some.conf"], CommandLine(Path("some.conf"), print_config=True)),
    ],
)
def test_options(arguments: list[str], expected: CommandLine) -> None:
    assert read(*arguments) == expected


def test_arguments_are_those_of_the_process_if_none_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["rocketmq-some", "-c", "some.conf"])
    assert read_arguments("rocketmq-some", "Serves something.", example="some.conf").config == Path("some.conf")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--no-such-option"], "--no-such-option"),
        (["-x"], "-x"),
        (["-c"], "-c"),
        (["--print-config=yes"], "--print-config"),
        (["start"], "start"),
        (["--two\nlines"], "--two"),
        (["--install-completion"], "--install-completion"),
    ],
)
def test_wrong_arguments_are_one_line(arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(arguments) == EXIT_USAGE
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert line.startswith("rocketmq-some: ")
    assert word in line
    assert line.endswith("(see rocketmq-some --help)")
    assert out == ""


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(["--version"]) == 0
    assert capsys.readouterr() == (f"rocketmq-some {__version__}\n", "")


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_the_help_names_all_options(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended([option]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    text = " ".join(out.split())
    assert text.startswith("usage: rocketmq-some ")
    assert " Serves something. " in text
    for word in ("-c", "--config", "FILE", "-p", "--print-config", "--version", "-h", "--help"):
        assert re.search(rf" {word}[ ,]", text), word
    assert text.endswith(
        "Every key may also come from the environment: ROCKETMQ_<KEY>. Example: rocketmq-some -c some.conf"
    )
    assert "completion" not in text
