"""The campaign's mutations fit the product as it is now."""

import ast
from pathlib import Path
from types import ModuleType

import pytest

from rocketmq_store.log.torn_records import Crash
from tests.campaign.load import ZEROS_EVERY, body_of
from tests.campaign.mutations import MUTATIONS, Mutation, changed, plant, text_of
from tests.campaign.plan import STORIES
from tests.store.kit import draft, opened


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


def test_cut_by_content_takes_the_zeros_of_a_body_for_a_torn_record(tmp_path: Path) -> None:
    mutation = MUTATIONS["cut by content"]
    mutant = ModuleType("mutant")
    exec(changed(mutation, text_of(mutation.module)), vars(mutant))
    store, _ = opened(tmp_path)
    whole = store.append(draft(body_of(ZEROS_EVERY - 1, 600)), 1_000).end
    end = store.append(draft(body_of(ZEROS_EVERY, 600)), 1_000).end

    walker = mutant.Walker(store.files, 0, end, check_crc=True, crash=Crash.KILLED)

    assert walker.next() is not None
    assert walker.next() is None
    assert walker.offset == whole
    store.close()
