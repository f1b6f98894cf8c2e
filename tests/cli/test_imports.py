"""Which modules a command imports: its user waits for each, and most commands need few of them."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.cli.main import _COMMANDS, module_of
from tests.cli.conftest import recorded, written
from tests.support import build
from tests.support.snapshots import header

ROOT = Path(__file__).parents[2]
#: Runs command lines in one process each, forked before anything is imported; prints what each imported.
_PROGRAM = """
import json, os, sys
for line in json.loads(sys.argv[1]):
    sys.stdout.flush()
    if os.fork():
        assert os.wait()[1] == 0, line
        continue
    before, told = set(sys.modules), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    from scheduler.cli.main import main
    try:
        code = main(line)
    except SystemExit as end:
        code = end.code
    os.write(told, (" ".join(sorted(set(sys.modules) - before)) + "\\n").encode())
    os._exit(code)
"""
#: What talks to an API server or serves a port.
_NETWORK = {"aiohttp", "asyncio", "httptools", "logging", "prometheus_client", "ssl"}
#: Those of the sandbox are parsed by their own modules.
OWN_COMMANDS = [name for name in _COMMANDS if module_of(name).startswith("scheduler.cli.")]
_SERVING = (
    "scheduler.daemon.kube.client",
    "scheduler.daemon.loop",
    "scheduler.daemon.port",
    "scheduler.tools.webhook",
)


def imported_by(*lines: list[str]) -> list[set[str]]:
    """Return the modules that each command line imports."""
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(lines)], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return [set(line.split()) for line in done.stdout.splitlines()]


def rooms(imported: set[str]) -> set[str]:
    return {name.split(".")[1] for name in imported if name.startswith("scheduler.")}


def test_the_menu_imports_no_command_and_the_version_nothing_else() -> None:
    """The version is read from the installed package."""
    menu, version = imported_by(["--help"], ["--version"])
    assert {name for name in menu if name.startswith("scheduler")} == {
        "scheduler",
        "scheduler.cli",
        "scheduler.cli.main",
        "scheduler.errors",
    }
    assert menu.isdisjoint(_NETWORK | {"importlib.metadata", "msgspec", "numpy", "yaml"})
    assert rooms(version) == {"cli", "errors", "version"}


def test_the_help_of_a_command_imports_only_its_parser() -> None:
    """Neither the libraries of what it does come with it; so it is for a Tab after its name."""
    heavy = {"aiohttp", "httptools", "kubernetes_asyncio", "numpy", "prometheus_client", "yaml"}
    imported = imported_by(*([command, "--help"] for command in OWN_COMMANDS))
    assert {name: names & heavy for name, names in zip(OWN_COMMANDS, imported, strict=True)} == {
        name: set() for name in OWN_COMMANDS
    }


@pytest.mark.parametrize(
    "environ",
    [{}, {"_ARGCOMPLETE": "1", "COMP_LINE": "affinity-scheduler run --con", "COMP_POINT": "28", "IFS": "\n"}],
    ids=["help", "tab"],
)
def test_the_help_of_run_costs_little(environ: dict[str, str]) -> None:
    """At most three times the CPU of an import of asyncio."""

    def cpu_s(*arguments: str) -> float:
        def once() -> float:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            with Path(os.devnull).open("w") as nowhere:
                # To file descriptor 8 argcomplete writes.
                line = ["sh", "-c", 'exec "$@" 8>/dev/null', "sh", sys.executable, *arguments]
                subprocess.run(line, stdout=nowhere, stderr=nowhere, env={**os.environ, **environ})
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

        return min(once() for _ in range(3))

    assert cpu_s("-m", "scheduler.cli.main", "run", "--help") <= 3 * cpu_s("-c", "import asyncio")


def test_without_a_cluster_no_client_is_imported(tmp_path: Path) -> None:
    """By what reads a snapshot, of today or of an earlier version, or is about configurations."""
    node, pod = build.node("node-0"), build.pod("web-0", spec={"schedulerName": "affinity-scheduler"})
    earlier = written(tmp_path / "earlier.json", {**header(), "nodes": [node], "pods": [pod]})
    on, manifest = recorded(tmp_path, node, pod), written(tmp_path / "pod.json", build.pod("new"))
    imported = imported_by(
        ["plugins"],
        ["check-config", str(ROOT / "config/affinity-scheduler.yaml")],
        ["explain", "web-0", "--on", on],
        ["simulate", "-f", manifest, "--on", on],
        ["simulate", "--drain", "node-0", "--on", earlier],
    )
    assert len(imported) == 5
    for names in imported:
        assert names.isdisjoint(_NETWORK)
        assert [name for name in names if name.startswith(_SERVING)] == []
