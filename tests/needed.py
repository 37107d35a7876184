"""What tests need of the machine: without it they are skipped on a laptop, and fail where CI=true promises it."""

import os
import shutil
from typing import NoReturn

import pytest

IN_CI = os.environ.get("CI", "").lower() not in {"", "0", "false"}


def unavailable(reason: str) -> NoReturn:
    """Skip the test that asks; in CI fail it."""
    if IN_CI:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def needs(*commands: str) -> pytest.MarkDecorator:
    """The mark of tests that run these commands; in CI they run, and fail at the one that is not there."""
    missing = [name for name in commands if shutil.which(name) is None]
    return pytest.mark.skipif(bool(missing) and not IN_CI, reason=f"not found: {', '.join(missing)}")
