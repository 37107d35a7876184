"""Runs last because of its name: nothing that was installed blocks a deletion."""

from e2e.kit.group import Group, wait
from e2e.stories.conftest import RELEASE, Installation

KINDS = "brokergroups,controllerclusters,nameservers"


def test_uninstall_leaves_no_finalizers(installation: Installation, group: Group) -> None:
    """With the operator gone first, and a group that would have had its controllers' metadata cleaned."""
    group.patch(storage={"reclaimPolicy": "Delete"})
    wait(lambda: "finalizers" in str(group.read()["metadata"]), "the finalizer", 30.0, lambda: str(group.read()))
    installation.helm("uninstall", RELEASE, "--wait", "--timeout=90s")
    group.kubectl("delete", KINDS, "--all", "--wait=false")
    group.kubectl("wait", "--for=delete", KINDS, "--all", "--timeout=60s")
    wait(lambda: not group.pod_uids(), "the pods to go with their owners", 60.0)
