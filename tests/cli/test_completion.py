"""Completion at a key press: commands, flags, and names of the cluster; in bash itself, where there is one."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.cli.main import main
from scheduler.sandbox.devcluster.kinds import DEPLOYMENT, POD
from tests.cli.conftest import embedded
from tests.support import build

ROOT = Path(__file__).parents[2]
PROGRAM = f'#!/bin/sh\nexec {sys.executable} -m scheduler "$@"\n'


@pytest.fixture
def code(tmp_path: Path) -> str:
    """Install the program, and return what its `completion bash` prints."""
    program = tmp_path / "affinity-scheduler"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return subprocess.check_output([program, "completion", "bash"], text=True, env=environment(tmp_path))


def completed(line: str, folder: Path, code: str) -> set[str]:
    """Return what bash proposes after the line, with this code."""
    script = f"""
{code}
COMP_LINE={line!r}; COMP_POINT=${{#COMP_LINE}}; COMP_TYPE=9; COMP_KEY=9; read -ra COMP_WORDS <<< "$COMP_LINE"
_python_argcomplete affinity-scheduler
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    shown = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment(folder))
    assert shown.returncode == 0, shown.stderr
    return {word.strip() for word in shown.stdout.splitlines()}


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not on PATH")
async def test_bash_completes_commands_flags_and_names_of_the_cluster(tmp_path: Path, code: str) -> None:
    async with embedded(tmp_path, nodes=2, zones=2) as cluster:
        cluster.store.create(POD, "kube-system", build.pod("dns", namespace="kube-system"))
        cluster.store.create(POD, "default", build.pod("web"))
        labels = {"matchLabels": {"app": "shop"}}
        template = {"metadata": {"labels": {"app": "shop"}}, "spec": {"containers": [build.container()]}}
        spec = {"replicas": 0, "selector": labels, "template": template}
        cluster.store.create(DEPLOYMENT, "default", {"metadata": {"name": "shop"}, "spec": spec})
        for line, expected in (
            ("affinity-scheduler ex", {"explain"}),
            ("affinity-scheduler simulate --with", {"--without-zone"}),
            ("affinity-scheduler explain -n kube-s", {"kube-system"}),
            ("affinity-scheduler explain -n kube-system d", {"dns"}),
            ("affinity-scheduler explain w", {"web"}),
            ("affinity-scheduler explain kube-system/d", {"kube-system/dns"}),
            ("affinity-scheduler explain deploy/", {"deploy/shop"}),
            (
                "affinity-scheduler simulate --drain node",
                {"node-0001", "node-0002"},
            ),
            ("affinity-scheduler simulate --without-zone zone-b", {"zone-b"}),
            (
                "affinity-scheduler simulate --drain node-0001,node-0002,n",
                {"node-0001,node-0002,node-0001", "node-0001,node-0002,node-0002"},
            ),
            ("affinity-scheduler enforce --namespace kube-s", {"kube-system"}),
            (
                "affinity-scheduler enforce --protected-namespaces default,kube-s",
                {"default,kube-system"},
            ),
            (f"affinity-scheduler simulate -f {tmp_path}/kubec", {f"{tmp_path}/kubeconfig"}),
            (f"affinity-scheduler explain --kubeconfig {tmp_path}/absent w", {""}),
        ):
            assert await asyncio.to_thread(completed, line, tmp_path, code) == expected, line


def test_kubectl_gets_a_name_a_line(tmp_path: Path) -> None:
    words = ["simulate", "--priority"]
    source = f"from scheduler.cli.completion import kubectl; kubectl({words!r})"
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, env=environment(tmp_path)
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "--priority-class", "")


@pytest.mark.parametrize(
    ("name", "proposed"),
    [("explian", "; did you mean explain?"), ("simulat", "; did you mean simulate?"), ("zzz", "")],
)
def test_a_mistyped_command_is_one_line(name: str, proposed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([name, "web-0"])
    expected = f"affinity-scheduler: there is no command {name!r}{proposed} (see affinity-scheduler --help)\n"
    assert capsys.readouterr().err == expected
