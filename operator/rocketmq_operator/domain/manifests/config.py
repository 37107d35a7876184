"""The text of the configuration files in the ConfigMaps."""

from collections.abc import Mapping

from rocketmq_formats import properties

Value = str | int | bool


def properties_text(*layers: Mapping[str, Value]) -> str:
    """Java properties text of `layers`, later ones over earlier ones: sorted by key, ASCII, escaped where Java's
    `Properties.load` and our own reader would lose something; booleans are `true` and `false`."""
    merged: dict[str, str] = {}
    for layer in layers:
        merged.update((key, _text(value)) for key, value in layer.items())
    return properties.dump(merged).decode()


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
