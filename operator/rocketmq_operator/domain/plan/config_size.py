"""Compares the configuration files of a resource with what fits a ConfigMap, before anything is applied."""

from collections.abc import Iterable, Mapping
from typing import Final

from rocketmq_operator.domain.plan.references import REASONS
from rocketmq_operator.domain.plan.step import NOTHING, Blocked, Step
from rocketmq_resources import names
from rocketmq_resources.decoding import Json

MAX_BYTES: Final = 1024 * 1024
"""Of all values in a ConfigMap; the API server refuses more."""
TOO_LARGE: Final = "ConfigTooLarge"
UNUSABLE: Final = REASONS | {TOO_LARGE}
"""Reasons why a spec cannot be carried out, whatever else is observed."""


def config_too_large(objects: Iterable[Json]) -> Step:
    """Refuse `objects`, which are to be applied, if one of their ConfigMaps is too large. Running pods stay as they
    are: they have read their files."""
    problem = next((text for text in map(_problem, objects) if text), None)
    return NOTHING if problem is None else Step(busy=True, blocked=Blocked(TOO_LARGE, problem))


def _problem(desired: Json) -> str | None:
    files = desired.get("data")
    if desired["kind"] != "ConfigMap" or not isinstance(files, Mapping):
        return None
    size = sum(len(str(text).encode()) for text in files.values())
    if size <= MAX_BYTES:
        return None
    metadata = desired["metadata"]
    assert isinstance(metadata, dict), "manifests are whole objects"
    component = metadata["labels"][names.LABEL_COMPONENT]
    each, way_out = "", "shorten spec.verification" if component == "verify" else "shorten spec.config"
    if component == "broker":
        each, way_out = f", spec.config in each of {len(files)} files", f"{way_out}, or set fewer spec.replicas"
    return (
        f"ConfigMap {metadata['name']} would have {size} bytes{each}, and {MAX_BYTES} are possible: {way_out}; until"
        " then nothing changes"
    )
