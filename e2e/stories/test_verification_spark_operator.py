"""examples/spark-operator as the Spark operator would run it: driver and executor are pods, the status gets the result.

After test_verification, which unsets spec.verification in the end.
"""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark
import pytest
import yaml

from e2e.kit.group import Group, wait
from e2e.kit.spark_application import submit_arguments
from e2e.stories.conftest import EXAMPLES, Installation
from e2e.stories.verifying import JOB_SECONDS, aligned, last

pytestmark = pytest.mark.java

DRIVER = "verify-broker-a-driver"
SPARK_HOME = Path(next(iter(pyspark.__path__)))
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="module")
def application(installation: Installation, group: Group) -> Iterator[dict[str, Any]]:
    """The ScheduledSparkApplication; what goes with it is in the group's namespace, as long as this module lasts."""
    *others, scheduled = yaml.safe_load_all((EXAMPLES / "spark-operator" / "verification.yaml").read_text())
    for body in others:
        for subject in body.get("subjects", ()):
            subject["namespace"] = installation.namespace
    there = json.dumps({"apiVersion": "v1", "kind": "List", "items": others})
    group.kubectl("apply", "-f", "-", input=there)
    yield scheduled
    group.kubectl("delete", "pod", DRIVER, "--ignore-not-found")  # and with it executors, Service and ConfigMap
    group.kubectl("delete", "-f", "-", input=there)


def test_a_run(
    installation: Installation,
    group: Group,
    application: dict[str, Any],
    node_images: Mapping[str, str],
    tmp_path: Path,
) -> None:
    group.whole()
    name = application["metadata"]["name"]
    arguments = submit_arguments(
        {**application["spec"]["template"], "image": node_images["spark"]},
        name,
        namespace=installation.namespace,
        master="k8s://" + installation.cluster.server(),
        driver_pod=DRIVER,
        folder=tmp_path,
    )
    environment = {"KUBECONFIG": str(installation.cluster.kubeconfig), "SPARK_HOME": str(SPARK_HOME)}
    done = subprocess.run(
        [SPARK_HOME / "bin" / "spark-submit", *arguments],
        env={**os.environ, **environment, "SPARK_SUBMIT_OPTS": QUICK},
        capture_output=True,
        text=True,
        timeout=JOB_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(arguments)}: {done.stderr}"
    seen: set[str] = set()

    def ended() -> bool:
        pods = group.pods(f"sparkoperator.k8s.io/app-name={name}")
        seen.update(pod["metadata"]["labels"]["spark-role"] for pod in pods.values())
        return pods[DRIVER]["status"]["phase"] in {"Succeeded", "Failed"}

    wait(ended, "the driver to end", JOB_SECONDS, lambda: group.kubectl("logs", DRIVER, "--tail=50"))
    log = group.kubectl("logs", DRIVER)
    assert seen == {"driver", "executor"}, log
    assert (last(group).get("result"), last(group).get("job")) == ("Aligned", name), log
    wait(lambda: aligned(group) == "True Aligned", "the condition", 30.0, lambda: aligned(group))
