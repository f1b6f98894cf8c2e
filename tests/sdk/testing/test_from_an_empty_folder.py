"""From an empty folder to a pod that one's own rule refuses: `plugins new`, its tests, `run --plugins`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import affinity_scheduler.plugin
import affinity_scheduler.testing
import pytest
from syrupy.assertion import SnapshotAssertion

import scheduler.sdk.plugin
import scheduler.sdk.testing
from scheduler.cli.main import main
from scheduler.daemon.settings.loading import load_settings
from scheduler.daemon.settings.out_of_tree_files import load_plugins
from scheduler.sdk.testing import make_node, make_pod
from tests.support.messages import refusals

if TYPE_CHECKING:
    from scheduler.sdk.testing.devcluster import DevClusterFixture

ZONE = "topology.kubernetes.io/zone"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder in which `plugins new TeamPerZone` was run."""
    monkeypatch.chdir(tmp_path)
    assert main(["plugins", "new", "TeamPerZone"]) == 0
    return tmp_path


def test_the_files_are_written_once(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert {path.name for path in folder.iterdir()} == {
        "team_per_zone.py",
        "test_team_per_zone.py",
        "team_per_zone.yaml",
        "team_per_zone_pods.yaml",
    }
    assert main(["plugins", "new", "TeamPerZone"]) == 2
    assert "team_per_zone.py: found a file, expected no file of that name" in capsys.readouterr().err


@pytest.mark.slow
def test_the_tests_that_were_written_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With pytest alone: the fixtures and the ready tests come with the package. The configuration names the rule."""
    monkeypatch.chdir(tmp_path)
    for name, flags in (("TeamPerNode", ()), ("TeamPerHost", ("--node-by-node",))):
        assert main(["plugins", "new", name, *flags]) == 0
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, "22 passed, 2 skipped" in done.stdout) == (0, True), done.stdout
    for file, name in (("team_per_node", "TeamPerNode"), ("team_per_host", "TeamPerHost")):
        loaded = load_plugins([f"{file}.py"], installed=False)
        assert load_settings(f"{file}.yaml", plugins=loaded).out_of_tree.keys() == {name}


def test_the_names_that_users_import_are_the_same_objects():
    """`affinity_scheduler.plugin` and `scheduler.sdk.plugin`: every name that is promised."""
    for old, new in (
        (scheduler.sdk.plugin, affinity_scheduler.plugin),
        (scheduler.sdk.testing, affinity_scheduler.testing),
    ):
        assert new.__all__ == old.__all__
        assert all(getattr(new, name) is getattr(old, name) for name in old.__all__)


@pytest.mark.slow
def test_a_pod_is_refused_with_the_rule_s_own_reason(folder: Path, devcluster: DevClusterFixture):
    """On an API server, by `run --plugins`; a node that comes lets the pod through."""
    devcluster.apply(make_node("a", labels={ZONE: "a"}))
    devcluster.run_scheduler(
        "--plugins", str(folder / "team_per_zone.py"), "--config", str(folder / "team_per_zone.yaml")
    )
    for name in ("one", "two"):
        devcluster.apply(make_pod(name, labels={"team": "blue"}))
        assert devcluster.node_of(name) == "a"
    devcluster.apply(make_pod("three", labels={"team": "blue"}))
    expected = "0/1 nodes are available: 1 node(s) had enough pods of the team in their domain."
    assert refusals(devcluster.refusal_of("three")) == expected
    devcluster.apply(make_node("b", labels={ZONE: "b"}))
    assert devcluster.node_of("three") == "b"


@pytest.mark.parametrize(
    "arguments",
    ["new", "new team-per-rack", "new NodeName", "--node-by-node", "list Some"],
)
def test_bad_arguments_are_one_line(
    arguments: str, capsys: pytest.CaptureFixture[str], snapshot: SnapshotAssertion
):
    assert main(["plugins", *arguments.split()]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err == snapshot


def test_the_list_has_built_in_plugins_and_one_s_own(folder: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["plugins", "--plugins", "team_per_zone.py"]) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "NAME VERSION FROM POINTS WEIGHT ARGUMENTS"
    assert lines[-1] == f"TeamPerZone team_per_zone.py filter most=3, topologyKey={ZONE}"
    assert any(line.startswith("ImageLocality") for line in lines)
    (folder / "bad.py").write_text("import missing")
    assert main(["plugins", "--plugins", ".", "-o", "json"]) == 2
    told = capsys.readouterr()
    assert '"name": "TeamPerZone"' in told.out
    assert told.err == "bad.py: line 1: ModuleNotFoundError: No module named 'missing'\n"
