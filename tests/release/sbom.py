"""
Bills of materials (CycloneDX 1.6, JSON) from a lock file: made by cyclonedx-bom, with the graph that the lock knows.

They have what Python installs. What else is in an image, BuildKit lists when it is pushed (`--attest type=sbom`).
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.release.checkout import ReleaseError
from tests.release.locks import Locked, path_of, read_lock

#: Variables of markers in the image, besides Python's version.
_IMAGE_ENVIRONMENT = {
    "os_name": "posix",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
}
_ROOT = "root-component"


def image_packages(root: Path) -> list[Locked]:
    """Return what the image installs: the packages of its lock for Linux and the Dockerfile's Python."""
    python = re.search(r"(?m)^ARG PYTHON=(\S+)$", (root / "Dockerfile").read_text())
    if python is None:
        raise ReleaseError("Dockerfile: found no ARG PYTHON, expected the version of Python in the image")
    environment = {
        **_IMAGE_ENVIRONMENT,
        "python_version": python[1],
        "python_full_version": f"{python[1]}.0",
    }
    return [each for each in read_lock(path_of(root, "image")) if each.is_wanted(environment)]


def bill_of_materials(
    packages: Iterable[Locked], pyproject: Path, component: dict[str, str], time_s: int
) -> bytes:
    """
    Return the bill of a component (fields of CycloneDX) that has these packages.

    Raises: ReleaseError if cyclonedx-bom fails.
    """
    by_name = {package.name: package for package in packages}
    command = [
        *(sys.executable, "-m", "cyclonedx_py", "requirements", "-"),
        # Without its own validation, of 2 s: what is validated, by a test, is the bill that is completed here.
        *("--pyproject", str(pyproject), "--output-reproducible", "--short-PURLs", "--no-validate"),
    ]
    lines = "\n".join(package.line for package in by_name.values())
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time_s)}
    done = subprocess.run(command, input=lines, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ReleaseError(f"cyclonedx-bom: found {said}, expected a bill of materials")
    bill: dict[str, Any] = json.loads(done.stdout)
    _complete(bill, by_name, component)
    return f"{json.dumps(bill, indent=2, sort_keys=True)}\n".encode()


def _complete(bill: dict[str, Any], by_name: dict[str, Locked], component: dict[str, str]) -> None:
    """Add the component and the graph, and drop the descriptions, which repeat the hashes."""
    references = {each["name"]: each["bom-ref"] for each in bill["components"]}
    for each in bill["components"]:
        each.pop("description", None)
    project = bill["metadata"]["component"]
    wanted_by: dict[str, list[str]] = {each: [] for each in (_ROOT, *references.values())}
    for name, package in by_name.items():
        for parent in package.required_by:
            if parent == project["name"]:
                wanted_by[_ROOT].append(references[name])
            elif parent in references:
                wanted_by[references[parent]].append(references[name])
    project.update(component)
    bill["dependencies"] = [
        {"ref": reference, "dependsOn": sorted(wanted)} if wanted else {"ref": reference}
        for reference, wanted in sorted(wanted_by.items())
    ]
