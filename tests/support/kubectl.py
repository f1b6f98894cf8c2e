"""Runs kubectl, preferably the one beside the API server's binaries."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.support.build import Json
from tests.support.waiting import TIMEOUT_S


class Kubectl:
    """kubectl with one kubeconfig."""

    def __init__(self, kubeconfig: Path | None = None) -> None:
        """Skip the test if there is no kubectl."""
        named = Path(os.environ.get("KUBEBUILDER_ASSETS", "")) / "kubectl"
        found = str(named) if named.is_file() else shutil.which("kubectl")
        if found is None:
            pytest.skip("kubectl is not installed")
        self._command = [found, *([] if kubeconfig is None else ["--kubeconfig", str(kubeconfig)])]

    def __call__(self, *arguments: str | Path, given: str | None = None) -> str:
        """Run the command and return its output. A failure has the error message."""
        command = [*self._command, *map(str, arguments)]
        done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def rendered(self, folder: Path) -> list[Json]:
        """Return the objects of a kustomization."""
        return list(yaml.safe_load_all(self("kustomize", folder)))
