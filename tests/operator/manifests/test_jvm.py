"""Sizes of the Java process in a container."""

import pytest

from rocketmq_operator.domain.manifests.groups.jvm import GIB, MIB, java_options, java_size
from tests.operator.manifests import cases


@pytest.mark.parametrize(
    ("memory", "heap", "direct"),
    [
        (None, "819m", "409m"),
        (512 * MIB, "256m", "128m"),
        (4 * GIB, "1638m", "819m"),
        (16 * GIB, "6553m", "3276m"),
        (64 * GIB, "8192m", "4096m"),
    ],
)
def test_derived_from_the_containers_memory(memory: int | None, heap: str, direct: str) -> None:
    words = java_options(memory=memory).split()
    assert words[:3] == [f"-Xms{heap}", f"-Xmx{heap}", f"-XX:MaxDirectMemorySize={direct}"]


def test_the_resource_overrides_the_derived_sizes() -> None:
    objects = cases.group_objects(cases.group(cases.GROUPS["group-apache"]))
    variables = cases.environment(cases.container(objects, "broker"), pod="broker-a-0")
    words = variables["JAVA_OPT_EXT"].split()
    assert words[:3] == ["-Xms1638m", "-Xmx1638m", "-XX:MaxDirectMemorySize=512m"]
    assert words[-1] == "-XX:+AlwaysPreTouch"
    assert "ROCKETMQ_BROKERIP1" not in variables  # POD_IP is what the start script reads
    assert variables["POD_IP"] == "10.0.0.7"


@pytest.mark.parametrize(
    ("written", "java"), [("2g", "2g"), ("2G", "2g"), ("2Gi", "2g"), ("512Mi", "512m"), ("900k", "900k")]
)
def test_sizes_as_people_write_them(written: str, java: str) -> None:
    assert java_size(written) == java


@pytest.mark.parametrize("written", ["", "g", "1.5g", "2gg", "-1g", "2 g", "٣g"])
def test_no_sizes(written: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        java_size(written)
