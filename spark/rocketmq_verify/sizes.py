"""Sizes as people write them: 1Mi, 200M, 4096. For options, configuration and output."""

from typing import Final

_UNITS: Final = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
_LARGEST: Final = 2**63 - 1


def parse_size(text: str) -> int:
    """Bytes, from 0 on.

    Raises:
        ValueError: not a size; the text has examples.
    """
    lower = text.strip().lower().removesuffix("b")
    digits = lower.rstrip("kmgti")
    factor = _UNITS.get(lower[len(digits) :])
    if factor is None or not (digits.isascii() and digits.isdecimal() and len(digits) <= 19):
        raise ValueError(f"{text!r} is not a size: write 1048576, 1Mi or 1M")
    size = int(digits) * factor
    if size > _LARGEST:
        raise ValueError(f"{text!r} is too large")
    return size


def format_bytes(count: float) -> str:
    """Three significant digits, in powers of ten."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 999.5 or unit == "TB":
            break
        count /= 1000
    else:  # pragma: no cover - the loop always breaks
        unit = "TB"
    return f"{count:.0f} {unit}" if unit == "B" or count >= 99.5 else f"{count:.3g} {unit}"
