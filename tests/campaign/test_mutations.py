"""The campaign's mutations fit the product as it is now."""

import ast
from pathlib import Path

import pytest

from tests.campaign.mutations import MUTATIONS, Mutation, changed, plant, text_of
from tests.campaign.plan import STORIES


@pytest.mark.parametrize("mutation", MUTATIONS.values(), ids=MUTATIONS)
def test_a_mutation_changes_what_a_module_does(mutation: Mutation) -> None:
    text = text_of(mutation.module)

    assert ast.dump(ast.parse(changed(mutation, text))) != ast.dump(ast.parse(text))
    assert mutation.story in {story.name for story in STORIES}


def test_a_mutant_is_the_package_with_that_change(tmp_path: Path) -> None:
    mutation = MUTATIONS["deliver early"]

    plant(mutation, tmp_path)

    assert mutation.after in (tmp_path / "rocketmq_broker/domain/consuming/arrivals.py").read_text()
    assert (tmp_path / "rocketmq_broker/__main__.py").exists()


def test_a_mutation_of_a_text_that_has_changed_is_refused() -> None:
    with pytest.raises(ValueError, match="does not have this text exactly once"):
        changed(MUTATIONS["deliver early"], "class Arrivals: ...\n")
