"""Which files the phases collect. That none is forgotten is seen by each run of all tests (tests/conftest.py)."""

from pathlib import Path

from tests.gate.marked import files


def test_files_with_a_mark_or_with_spark(tmp_path: Path) -> None:
    texts = {
        "./a/test_marked.py": "pytestmark = [pytest.mark.timeout(9), pytest.mark.interop]",
        "./a/test_spark.py": "def test_it(engine: Engine) -> None: ...",
        "./test_pure.py": "def test_processes(processes) -> None: ...  # mark.javascript",
        "./a/kit.py": "pytest.mark.java",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert files(tmp_path, "together") == [str(tmp_path / name) for name in ("./a/test_marked.py", "./a/test_spark.py")]


def test_files_that_compute_for_long(tmp_path: Path) -> None:
    texts = {
        ("sim", "deep", "story"): "",
        ("store", "model"): "",
        ("store", "one"): "@pytest.mark.long",
        ("store", "short"): "def test_longer() -> None: ...",
    }
    made = {tmp_path.joinpath("tests", *folders, f"test_{name}.py"): text for (*folders, name), text in texts.items()}
    for file, text in made.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert files(tmp_path, "long") == [str(file) for file in made if "short" not in file.name]
