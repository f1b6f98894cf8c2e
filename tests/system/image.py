"""
`make image-check`: builds the image, runs it as its pods do, and tries how it is installed, goes back and leaves.

The tests that do so run on the image's files and against the embedded cluster, and against a real API server too where
KUBEBUILDER_ASSETS names one. Without a container engine they run on what the Dockerfile's commands make in a folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.manifest_files import ROOT

_ENGINES: Final = ("buildah", "podman", "docker")
_TESTS: Final = ("tests/system/manifests/test_image.py", "tests/system/chart")


def main(build_arguments: Sequence[str]) -> int:
    """Build with these arguments of the engine's `build`, and return the exit code of the tests."""
    engine = next((name for name in _ENGINES if _answers(name)), None)
    if engine is not None and os.geteuid() != 0:
        print(
            "image-check: found a user without rights, expected root, who may run the image's files",
            file=sys.stderr,
        )
        return 2
    with tempfile.TemporaryDirectory(prefix="image-") as folder:
        environment = dict(os.environ)
        if engine is None:
            print(
                f"image-check: no image was built: none of {', '.join(_ENGINES)} answers here; the rest follows"
            )
        else:
            output = ("--output", f"type=local,dest={folder}")
            subprocess.run([engine, "build", *output, *build_arguments, str(ROOT)], check=True)
            Path(folder).chmod(0o755)  # as the root of a container, which every user may enter
            environment["IMAGE_ROOT"] = folder
            print(f"image-check: built by {engine}")
        tests = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *_TESTS]
        return subprocess.run(tests, cwd=ROOT, env=environment).returncode


def _answers(engine: str) -> bool:
    """Return whether the engine is installed, and whatever it needs runs."""
    return (
        shutil.which(engine) is not None
        and not subprocess.run([engine, "info"], capture_output=True).returncode
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
