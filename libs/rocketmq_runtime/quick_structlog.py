"""Imports structlog without rich, which it would import wherever rich is installed, for tracebacks that `logs` does not
use. That is a third of a server's start, and a server that starts is a replica that is missing.

The packages of the servers import this first, before anything that logs. rich stays there for whoever asks for it.
"""

import sys
from typing import cast

if "structlog" not in sys.modules and "rich" not in sys.modules:
    # None is how Python says that a module is not to be found (the import system, "the module cache").
    modules = cast("dict[str, object]", sys.modules)
    modules["rich"] = None
    try:
        import structlog  # noqa: F401 - its being imported is all that is wanted
    finally:
        del modules["rich"]
