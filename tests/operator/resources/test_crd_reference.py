"""docs/crd-reference.md is what crds/ make, and has every field."""

import subprocess
import sys

import yaml

from tests.paths import ROOT


def test_the_reference_is_up_to_date() -> None:
    subprocess.run([sys.executable, ROOT / "hack" / "crd_reference.py", "--check"], check=True)


def test_every_field_of_a_group_has_a_line() -> None:
    page = (ROOT / "docs" / "crd-reference.md").read_text()
    crd = yaml.safe_load((ROOT / "crds" / "brokergroups.yaml").read_text())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    for part in ("spec", "status"):
        for name in schema[part]["properties"]:
            assert f"| `{name}` |" in page, name
    for nested in ("storage.commitLog.size", "failover.leaseTimeoutMs", "replicaStatuses[].brokerId"):
        assert f"| `{nested}` |" in page
