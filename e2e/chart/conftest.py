"""Releases of the chart on the suite's cluster, each in a namespace of its own that enforces `restricted`."""

import contextlib
from collections.abc import Callable, Iterator, Mapping

import pytest

from e2e.chart.release import HelmError, Release
from e2e.kit.cluster import Cluster

Releases = Callable[..., Release]


@pytest.fixture(scope="module")
def releases(cluster: Cluster, node_images: Mapping[str, str]) -> Iterator[Releases]:
    """Makes releases that are not installed yet: `releases("mq")`. What is installed at the end is uninstalled."""
    made: list[Release] = []

    def release(name: str, namespace: str | None = None) -> Release:
        made.append(Release(cluster, namespace or cluster.namespace(), name))
        return made[-1]

    yield release
    for one in made:
        with contextlib.suppress(HelmError):
            one.helm("uninstall", one.name, "--ignore-not-found", "--no-hooks")
