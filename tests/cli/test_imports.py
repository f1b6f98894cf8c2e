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
from tests.support import build
from tests.support.snapshots import header

ROOT = Path(__file__).parents[2]
#: Runs the command line, then prints the modules that were imported meanwhile.
_PROGRAM = """
import sys
before = set(sys.modules)
from scheduler.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print("\\n".join(sorted(set(sys.modules) - before)), file=sys.stderr)
sys.exit(code)
"""
#: What talks to an API server or serves a port.
_NETWORK = {"aiohttp", "asyncio", "httptools", "logging", "prometheus_client", "ssl"}
#: Those of the sandbox are parsed by their own modules.
OWN_COMMANDS = [name for name in _COMMANDS if module_of(name).startswith("scheduler.cli.")]
_SERVING_ROOMS = {"observe", "serving", "shell", "webhook"}


def imported_by(*arguments: str) -> set[str]:
    done = subprocess.run([sys.executable, "-c", _PROGRAM, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split())


def rooms(imported: set[str]) -> set[str]:
    return {name.split(".")[1] for name in imported if name.startswith("scheduler.")}


@pytest.fixture(params=["of an earlier version", "of today"])
def snapshot(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the file of a snapshot with one node and one pending pod."""
    path = tmp_path / "snapshot.json"
    node, pod = build.node("node-0"), build.pod("web-0", spec={"schedulerName": "affinity-scheduler"})
    lines: list[build.Json] = [{**header(), "nodes": [node], "pods": [pod]}]
    if request.param == "of today":
        objects = [{"atS": 0, "kind": each["kind"], "object": each} for each in (node, pod)]
        lines = [{**header(), "kind": "ClusterRecording"}, *objects, {"atS": 0, "kind": "Synced"}]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(path)


def test_the_menu_imports_no_command() -> None:
    imported = imported_by("--help")
    assert {name for name in imported if name.startswith("scheduler")} == {
        "scheduler",
        "scheduler.cli",
        "scheduler.cli.main",
        "scheduler.errors",
    }
    assert imported.isdisjoint(_NETWORK | {"importlib.metadata", "msgspec", "numpy", "yaml"})


@pytest.mark.parametrize("command", OWN_COMMANDS)
def test_the_help_of_a_command_imports_only_its_parser(command: str) -> None:
    """Neither the libraries of what it does come with it; so it is for a Tab after its name."""
    imported = imported_by(command, "--help")
    assert imported.isdisjoint(
        {"aiohttp", "httptools", "kubernetes_asyncio", "numpy", "prometheus_client", "yaml"}
    )


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

        return min(once() for _ in range(5))

    assert cpu_s("-m", "scheduler.cli.main", "run", "--help") <= 3 * cpu_s("-c", "import asyncio")


def test_the_version_needs_nothing_else() -> None:
    """It is read from the installed package."""
    assert rooms(imported_by("--version")) == {"cli", "errors", "version"}


@pytest.mark.parametrize(
    "command", [["explain", "web-0"], ["simulate", "-f"], ["simulate", "--drain", "node-0"]]
)
def test_a_snapshot_is_read_without_a_client(command: list[str], snapshot: str, tmp_path: Path) -> None:
    if command[-1] == "-f":
        manifest = tmp_path / "pod.json"
        manifest.write_text(json.dumps(build.pod("new")))
        command = [*command, str(manifest)]
    imported = imported_by(*command, "--on", snapshot)
    assert imported.isdisjoint(_NETWORK)
    assert rooms(imported).isdisjoint(_SERVING_ROOMS)
    assert "scheduler.daemon.kube.client" not in imported


@pytest.mark.parametrize(
    "command", [["plugins"], ["check-config", str(ROOT / "config/affinity-scheduler.yaml")]]
)
def test_a_command_about_configurations_needs_no_client(command: list[str]) -> None:
    imported = imported_by(*command)
    assert imported.isdisjoint(_NETWORK)
    assert rooms(imported).isdisjoint(_SERVING_ROOMS | {"kube"})
