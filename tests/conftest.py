"""What holds for all tests."""

import asyncio


def pytest_configure() -> None:
    """Without this, looptime's look at the current event loop makes asyncio create one before each synchronous test,
    which nobody closes; the warning then hits whatever test runs when it is collected."""
    asyncio.set_event_loop(None)
