"""Nothing here needs an image."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def _images_meanwhile(request: pytest.FixtureRequest) -> None:
    """The tests after these do: theirs are loaded while these run."""
    if any("node_images" in getattr(item, "fixturenames", ()) for item in request.session.items):
        request.getfixturevalue("loading")
