"""The arguments of spark-submit that the Spark operator makes of a SparkApplication (kubeflow/spark-operator,
internal/controller/sparkapplication/submission.go), as far as examples/spark-operator uses its fields.

Used to test the example without the operator's own image.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

USED = {"type", "pythonVersion", "mode", "sparkVersion", "image", "imagePullPolicy", "mainApplicationFile"} | {
    "restartPolicy",
    "sparkConf",
    "driver",
    "executor",
}
USED_OF_PODS = {"cores", "coreRequest", "memory", "memoryOverhead", "serviceAccount", "instances", "template"}


def submit_arguments(
    spec: Mapping[str, Any], name: str, *, namespace: str, master: str, driver_pod: str, folder: Path
) -> list[str]:
    """Of spark-submit, for the SparkApplication `name` of this `spec`; pod templates are written to `folder`.

    ValueError: the spec has a field that this does not know.
    """
    unknown = set(spec) - USED | set(spec["driver"]) - USED_OF_PODS | set(spec["executor"]) - USED_OF_PODS
    if unknown:
        raise ValueError(f"not known how the Spark operator takes {sorted(unknown)}")
    conf = {
        "spark.kubernetes.namespace": namespace,
        "spark.kubernetes.container.image": spec["image"],
        "spark.kubernetes.container.image.pullPolicy": spec["imagePullPolicy"],
        "spark.kubernetes.pyspark.pythonVersion": spec["pythonVersion"],
        "spark.kubernetes.submission.waitAppCompletion": "false",
        **spec["sparkConf"],
        "spark.kubernetes.driver.pod.name": driver_pod,
        "spark.executor.instances": spec["executor"]["instances"],
        **dict(_of_pods("driver", spec["driver"], name, folder)),
        **dict(_of_pods("executor", spec["executor"], name, folder)),
    }
    options = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
    return [
        "--master",
        master,
        "--deploy-mode",
        spec["mode"],
        "--name",
        name,
        *options,
        spec["mainApplicationFile"],
    ]


def _of_pods(role: str, wanted: Mapping[str, Any], name: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Settings of driver or executors."""
    file = folder / f"{role}-pod-template.yaml"
    file.write_text(json.dumps(wanted["template"]))
    yield f"spark.kubernetes.{role}.label.sparkoperator.k8s.io/app-name", name
    yield f"spark.kubernetes.{role}.label.sparkoperator.k8s.io/launched-by-spark-operator", "true"
    yield f"spark.{role}.cores", wanted["cores"]
    yield f"spark.kubernetes.{role}.request.cores", wanted["coreRequest"]
    yield f"spark.{role}.memory", wanted["memory"]
    yield f"spark.{role}.memoryOverhead", wanted["memoryOverhead"]
    if "serviceAccount" in wanted:
        yield f"spark.kubernetes.authenticate.{role}.serviceAccountName", wanted["serviceAccount"]
    yield f"spark.kubernetes.{role}.podTemplateFile", str(file)
    yield f"spark.kubernetes.{role}.podTemplateContainerName", f"spark-kubernetes-{role}"
