"""`affinity-scheduler ui` with input that it cannot use: one line, exit code 2."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from scheduler.cli.main import main
from tests.cli.conftest import embedded
from tests.support.daemon import refused

KUBECTL_IS_ABSENT = shutil.which("kubectl") is None


def test_without_kubectl_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert main(["ui", "--no-browser"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "kubectl: found no such command, expected kubectl on the PATH"
    ]


@pytest.mark.skipif(KUBECTL_IS_ABSENT, reason="kubectl is not on PATH")
async def test_kubectls_reason_is_passed_on(tmp_path: Path) -> None:
    """There is no such deployment."""
    async with embedded(tmp_path, nodes=1):
        line = await refused("ui", "--no-browser", "--kubeconfig", str(tmp_path / "kubeconfig"))
    assert line.startswith("--scheduler: deployment/affinity-scheduler: found ")
    assert '"affinity-scheduler" not found' in line
