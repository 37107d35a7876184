"""Kubernetes quantities (`10Gi`, `1.5G`, `500m`) as whole numbers. Used wherever the operator computes with sizes."""

import re
from fractions import Fraction
from typing import Final

_SUFFIXES: Final = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}
_FORM: Final = re.compile(
    r"([0-9]{1,19}(?:\.[0-9]{0,9})?|\.[0-9]{1,9})(?:([eE][+-]?[0-9]{1,2})|([mkMGTPE]|[KMGTPE]i)?)"
)


class QuantityError(ValueError):
    """Not a quantity."""


def parse_quantity(value: object) -> int:
    """Whole units (bytes for sizes), rounded up as Kubernetes does; `value` is a string, or a number from JSON.

    Raises:
        QuantityError: not a quantity, or negative.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    matched = _FORM.fullmatch(value) if isinstance(value, str) else None
    if matched is None:
        raise QuantityError(f"{value!r} is not a quantity such as 512Mi, 10Gi or 1500000000")
    number, exponent, suffix = matched.groups()
    scaled = Fraction(number) * (Fraction(10) ** int(exponent[1:]) if exponent else _SUFFIXES[suffix or ""])
    return -int(-scaled // 1)
