"""hack/english.py: where it finds a banned word, and where the word is a name."""

from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.scripts import load_script

english = load_script(ROOT / "hack" / "english.py")
PRODUCT = "broker/rocketmq_broker/app.py"


def found(root: Path, name: str, content: str) -> list[tuple[int, str, str]]:
    """(line, area, words) of what is found in a file with this content."""
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return [(line, text.area, words) for text in english.texts(root, [name]) for line, words, _ in english.hits(text)]


def test_a_docstring_is_read_in_every_line(tmp_path: Path) -> None:
    assert found(tmp_path, PRODUCT, '"""First line.\n\nIt waits meanwhile.\n"""\n') == [(3, "maintainer", "meanwhile")]
    attribute = 'class A:\n    x = 1\n    """Nobody reads it."""\n'
    assert found(tmp_path, "tests/conftest.py", attribute) == [(3, "maintainer", "Nobody")]


@pytest.mark.parametrize(
    "name", [PRODUCT, "kubectl/rocketmq_kubectl/output.py", "helm/rocketmq-ha/files/check_install.py"]
)
def test_a_message_of_a_product_is_what_users_read(tmp_path: Path, name: str) -> None:
    assert found(tmp_path, name, 'log.info("tried for ever", why=1)\n') == [(1, "user", "for ever")]
    assert found(tmp_path, name, 'raise Error(f"{a} has so many of {b}")\n') == [(1, "user", "so many")]


def test_a_message_of_a_test_is_not(tmp_path: Path) -> None:
    assert found(tmp_path, "tests/conftest.py", 'assert a, "it waits so long"\n') == []


def test_a_comment_is_read(tmp_path: Path) -> None:
    assert found(tmp_path, "tests/conftest.py", "a = 1  # it goes on\n") == [(1, "maintainer", "goes on")]


@pytest.mark.parametrize(
    "name", ["docs/operations.md", "CHANGELOG.md", "crds/brokergroups.yaml", "libs/rocketmq_api/sidecar_admin.proto"]
)
def test_a_page_and_a_schema_are_what_users_read(tmp_path: Path, name: str) -> None:
    assert found(tmp_path, name, "A line.\nIt acknowledges nothing meanwhile.\n") == [(2, "user", "meanwhile")]


def test_code_in_a_page_is_not_read(tmp_path: Path) -> None:
    assert found(tmp_path, "docs/operations.md", "Run `nobody meanwhile`.\n```\nfor ever\n```\n") == []


def test_names_of_code_are_not_read(tmp_path: Path) -> None:
    code = 'meanwhile = 1\n\n\ndef nobody(thus: int) -> int:\n    return thus + meanwhile\n\n\nkind = "meanwhile"\n'
    assert found(tmp_path, PRODUCT, code) == []


@pytest.mark.parametrize(
    "name", ["tests/golden/mqadmin/README.md", "hack/english.py", "libs/rocketmq_api/sidecar_admin_pb2.py"]
)
def test_recordings_and_generated_code_are_not_read(tmp_path: Path, name: str) -> None:
    assert found(tmp_path, name, "# meanwhile\n") == []


@pytest.mark.parametrize(
    "text",
    ["It is forever.", "so much", "so many that it fails", "so long that it fails", "the meaning", "none of them"],
)
def test_words_that_only_look_like_it(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, "docs/operations.md", text + "\n") == []


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (f"| a | {'word ' * 38}end |", "193 characters, sentences: 1"),
        ("| One. Two. Three | b |", "sentences: 3"),
        (
            f"| [{'word ' * 18}](page.md#{'x' * 200}) `{'code ' * 40}` test_{'x' * 200} owner/name#{'1' * 200} | b |",
            None,
        ),
        ("One. Two. Three. Not a table.", None),
        ("```\n| One. Two. Three. Four | an example |\n```", None),
    ],
)
def test_a_cell_of_a_table_is_taken_in_at_a_glance(row: str, why: str | None) -> None:
    found = [why for _line, why in english.long_cells("docs/operations.md", f"{row}\n")]

    assert len(found) == (why is not None)
    assert all(why in cell for cell in found if why)
