"""What a PromQL expression names: metrics and labels. Knows enough of the grammar for our own alerts and panels."""

import re
from collections.abc import Iterator

import msgspec

WORDS = frozenset({"and", "or", "unless", "bool", "offset", "inf", "nan"})
AGGREGATIONS = frozenset({"sum", "min", "max", "avg", "count", "topk", "bottomk", "quantile"})
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'")
_RANGE = re.compile(r"\[[^\]]*\]")
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_SELECTOR = re.compile(r"(?<![\w:.$])([a-zA-Z_:][\w:]*)\s*(\{[^}]*\})?(\s*\()?")
_MATCHER = re.compile(r"([a-zA-Z_]\w*)\s*(?:=~|!~|!=|=)")


class Named(msgspec.Struct, frozen=True):
    """One metric, and the labels that its own matchers name."""

    metric: str
    labels: frozenset[str]


def selectors(expression: str) -> Iterator[Named]:
    """Every metric in `expression`."""
    bare = _GROUPING.sub("", _RANGE.sub("", _STRING.sub('""', expression)))
    for name, matchers, call in _SELECTOR.findall(bare):
        if call or name in WORDS or name in AGGREGATIONS:
            continue
        yield Named(name, frozenset(_MATCHER.findall(matchers)))


def groupings(expression: str) -> set[str]:
    """Labels that the expression groups or joins by."""
    bare = _STRING.sub('""', expression)
    return {label.strip() for found in _GROUPING.findall(bare) for label in found.split(",") if label.strip()}
