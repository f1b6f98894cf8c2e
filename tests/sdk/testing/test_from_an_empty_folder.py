"""From an empty folder to a pod that one's own rule refuses: `plugins new`, its tests, `run --plugins`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import affinity_scheduler.plugin
import affinity_scheduler.testing
import pytest

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
@pytest.mark.parametrize(
    ("flags", "told"),
    [((), "11 passed, 1 skipped"), (("--node-by-node",), " passed")],
    ids=["all", "one by one"],
)
def test_the_tests_that_were_written_pass(
    flags: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """With pytest alone: the fixtures and the ready tests come with the package. The configuration names the rule."""
    monkeypatch.chdir(tmp_path)
    assert main(["plugins", "new", "TeamPerNode", *flags]) == 0
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_team_per_node.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, told in done.stdout) == (0, True), done.stdout
    loaded = load_plugins(["team_per_node.py"], installed=False)
    assert load_settings("team_per_node.yaml", plugins=loaded).out_of_tree.keys() == {"TeamPerNode"}


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
    ("arguments", "message"),
    [
        (["new"], "NAME: found nothing, expected a class name such as TeamPerRack"),
        (["new", "team-per-rack"], "NAME: found 'team-per-rack', expected a class name such as TeamPerRack"),
        (["new", "NodeName"], "NAME: found NodeName, expected a name that no plugin of kube-scheduler has"),
        (["--node-by-node"], "--node-by-node: found plugins list, expected plugins new NAME --node-by-node"),
        (["list", "Some"], "arguments: found Some, expected nothing after list"),
    ],
)
def test_bad_arguments_are_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]):
    assert main(["plugins", *arguments]) == 2
    assert message in capsys.readouterr().err


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
