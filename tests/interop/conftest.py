"""One lab for the whole session, honest skips, and the logs of each failure."""

from collections.abc import Generator, Iterator

import pytest

from rocketmq_demo.apache import jars
from tests.conftest import MEASURED
from tests.interop import faults
from tests.interop.lab import Group, Lab
from tests.interop.native import NativeGroup
from tests.lab import programs
from tests.needed import unavailable

LAB = pytest.StashKey[Lab]()
LOADS = pytest.StashKey[list[faults.Load]]()


@pytest.fixture(scope="session")
def apache() -> None:
    """Official processes can be started here; if not, this is a skip on a laptop and a failure in CI."""
    try:
        jars.java()
        jars.classpath()
        programs.classpath()
    except jars.ApacheEngineUnavailable as error:
        unavailable(f"needs official RocketMQ processes: {error}")


@pytest.fixture(scope="session")
def lab(apache: None, tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Lab]:
    """Three controllers of ours and an official name server."""
    laboratory = Lab(tmp_path_factory.mktemp("interop"))
    pytestconfig.stash[LAB] = laboratory
    try:
        laboratory.start()
        yield laboratory
    finally:
        laboratory.close()


@pytest.fixture(scope="session")
def native(lab: Lab) -> Iterator[NativeGroup]:
    """Three replicas and two name servers of ours."""
    group = NativeGroup(lab, "broker-n")
    try:
        group.start()
        yield group
    finally:
        group.close()


@pytest.fixture(scope="session")
def official(lab: Lab) -> Iterator[Group]:
    """Three official brokers that survive all faults; its last user ends it."""
    group = Group(lab, "broker-b")
    try:
        group.form()
        yield group
    finally:
        group.close()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LOADS] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and LAB in item.config.stash:
        report.sections.extend(item.config.stash[LAB].logs())
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    loads = session.config.stash[LOADS]
    if loads:
        title = "longest time without an acknowledged send".center(80, "=")
        session.config.stash[MEASURED] += [title, *(line for load in loads for line in faults.table(load))]
