"""Completion at a key press: commands, flags, and names of the cluster; in bash itself, where there is one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from scheduler.cli.main import main
from scheduler.sandbox.devcluster.kinds import DEPLOYMENT, POD
from tests.cli.conftest import embedded
from tests.support import build
from tests.support.forking import forked
from tests.support.workloads import workload

ROOT = Path(__file__).parents[2]
PROGRAM = f'#!/bin/sh\nexec {sys.executable} -m scheduler "$@"\n'


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not on PATH")
def test_bash_completes_commands(tmp_path: Path) -> None:
    """By what `completion bash` prints."""
    program = tmp_path / "affinity-scheduler"
    program.write_text(PROGRAM)
    program.chmod(0o755)
    code = subprocess.check_output([program, "completion", "bash"], text=True, env=environment(tmp_path))
    script = f"""
{code}
COMP_LINE="affinity-scheduler ex"; COMP_POINT=${{#COMP_LINE}}; COMP_TYPE=9; COMP_KEY=9
read -ra COMP_WORDS <<< "$COMP_LINE"
_python_argcomplete affinity-scheduler
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    shown = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=environment(tmp_path))
    assert (shown.returncode, shown.stdout.strip()) == (0, "explain"), shown.stderr


async def completed(line: str) -> set[str]:
    """Return what is proposed after the line."""
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_STDOUT_FILENAME": "/dev/stdout"}
    with mock.patch.dict(os.environ, asked, COMP_LINE=line, COMP_POINT=str(len(line))):
        process = await forked("scheduler")
    out, err = await process.communicate()
    assert process.returncode == 0, err
    return {word.strip() for word in out.decode().split("\n")}


async def test_flags_and_names_of_the_cluster_are_completed(tmp_path: Path) -> None:
    async with embedded(tmp_path, nodes=2, zones=2) as cluster:
        cluster.store.create(POD, "kube-system", build.pod("dns", namespace="kube-system"))
        cluster.store.create(POD, "default", build.pod("web"))
        shop = workload("Deployment", "shop", build.pod(labels={"app": "shop"}), 0)
        cluster.store.create(DEPLOYMENT, "default", shop)
        for line, expected in (
            ("simulate --with", {"--without-zone"}),
            ("explain -n kube-s", {"kube-system"}),
            ("explain -n kube-system d", {"dns"}),
            ("explain w", {"web"}),
            ("explain kube-system/d", {"kube-system/dns"}),
            ("explain deploy/", {"deploy/shop"}),
            ("simulate --drain node", {"node-0001", "node-0002"}),
            ("simulate --without-zone zone-b", {"zone-b"}),
            (
                "simulate --drain node-0001,node-0002,n",
                {"node-0001,node-0002,node-0001", "node-0001,node-0002,node-0002"},
            ),
            ("enforce --namespace kube-s", {"kube-system"}),
            ("enforce --protected-namespaces default,kube-s", {"default,kube-system"}),
            (f"simulate -f {tmp_path}/kubec", {f"{tmp_path}/kubeconfig"}),
            (f"explain --kubeconfig {tmp_path}/absent w", {""}),
        ):
            assert await completed(f"affinity-scheduler {line}") == expected, line


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
