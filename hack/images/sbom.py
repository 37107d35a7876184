"""Writes the bill of materials of the image it runs in, CycloneDX JSON: `sbom.py NAME`.

The Dockerfile calls it with the image's own Python at the end of each target. It lists the distributions that Python
sees, Debian's packages, the interpreter, and Spark's jars. It does not depend on the time: the same image has the
same bytes.
"""

import importlib.util
import json
import platform
import re
import sys
import zipfile
from importlib import metadata
from pathlib import Path
from urllib.parse import quote

DPKG_STATUS = Path("/var/lib/dpkg/status")
OS_RELEASE = Path("/etc/os-release")
OUTPUT = Path("/usr/share/rocketmq-ha/sbom.json")
Component = dict[str, object]


def main() -> int:
    name = f"rocketmq-ha/{sys.argv[1]}"
    version = metadata.version("rocketmq-ha")
    components = sorted(
        [*interpreter(), *distributions(), *debian_packages(), *jars()], key=lambda item: str(item["purl"])
    )
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "container", "name": name, "version": version}},
        "components": components,
    }
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(bill, indent=1) + "\n")
    return 0


def interpreter() -> list[Component]:
    """CPython is no package where the base image compiled it itself."""
    version = platform.python_version()
    return [component("application", "cpython", version, f"pkg:generic/cpython@{version}", "Python-2.0")]


def distributions() -> list[Component]:
    """Python distributions, by the metadata they were installed with."""
    found = []
    for distribution in metadata.distributions():
        fields = distribution.metadata
        name, version = fields["Name"], distribution.version
        purl = f"pkg:pypi/{quote(name.lower().replace('_', '-'))}@{quote(version)}"
        found.append(component("library", name, version, purl, licence_of(fields)))
    return found


def licence_of(fields: "metadata.PackageMetadata") -> str:
    """The SPDX expression if there is one, else what the authors wrote, one line of it."""
    expression = fields.get("License-Expression")
    if expression:
        return str(expression)
    classes = [
        line.rsplit(" :: ", 1)[-1] for line in fields.get_all("Classifier") or () if line.startswith("License ::")
    ]
    if classes:
        return "; ".join(classes)
    return str(fields.get("License") or "").strip().partition("\n")[0][:100]


def debian_packages() -> list[Component]:
    """Debian's packages that are installed, from dpkg's own list."""
    if not DPKG_STATUS.exists():
        return []
    release = dict(line.split("=", 1) for line in OS_RELEASE.read_text().splitlines() if "=" in line)
    distro = f"debian-{release.get('VERSION_ID', '').strip(chr(34))}"
    found = []
    for paragraph in DPKG_STATUS.read_text().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if re.match("[A-Z][A-Za-z-]*: ", line))
        if fields.get("Status") == "install ok installed":
            name, version = fields["Package"], fields["Version"]
            purl = f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={fields['Architecture']}&distro={distro}"
            found.append(component("library", name, version, purl))  # licences: /usr/share/doc/NAME/copyright
    return found


def jars() -> list[Component]:
    """Of Spark, where it is: as Maven knows them, else by the name of the file."""
    spec = importlib.util.find_spec("pyspark")
    folder = None if spec is None or spec.origin is None else Path(spec.origin).parent / "jars"
    found: dict[str, Component] = {}
    for path in sorted(folder.glob("*.jar")) if folder is not None else ():
        matched = re.fullmatch(r"(.+?)-(\d[\w.]*)(?:-([\w.-]+))?", path.stem)
        name, version, classifier = matched.groups() if matched else (path.stem, "", None)
        group = group_of(path, name)
        purl = f"pkg:maven/{quote(group)}/{quote(name)}" if group else f"pkg:generic/{quote(name)}"
        purl += f"@{quote(version)}" + (f"?classifier={quote(classifier)}" if group and classifier else "")
        found[purl] = component("library", name, version, purl)
    return list(found.values())


def group_of(path: Path, artifact: str) -> str:
    """Maven's group, from the jar's own metadata; empty if it does not say."""
    with zipfile.ZipFile(path) as jar:
        for entry in jar.namelist():
            matched = re.fullmatch(r"META-INF/maven/([^/]+)/([^/]+)/pom.properties", entry)
            if matched and matched[2] == artifact:
                return matched[1]
    return "org.apache.spark" if artifact.startswith("spark-") else ""


def component(kind: str, name: str, version: str, purl: str, licence: str = "") -> Component:
    """One entry in CycloneDX's form."""
    entry: Component = {"type": kind, "name": name, "version": version, "purl": purl, "bom-ref": purl}
    if licence:
        entry["licenses"] = [{"license": {"name": licence}}]
    return entry


if __name__ == "__main__":
    sys.exit(main())
