"""Plugins of one's own in the commands that explain, on the embedded cluster and on a compressed snapshot."""

from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.sandbox.devcluster.kinds import NODE, POD
from scheduler.sdk.testing import Cluster, make_node, make_pod
from tests.cli.conftest import Called, embedded, hold_lease

EXAMPLES = Path(__file__).parents[2] / "manifests" / "examples" / "plugins"
FLAGS = ("--plugins", str(EXAMPLES), "--config", str(EXAMPLES / "configuration.yaml"))
RACK, PRICE = "example.com/rack", "example.com/price-per-hour"
SECRET = "s3cr3t"


def _pod(name: str, **more: Any) -> dict[str, Any]:
    return make_pod(name, labels={"team": "blue"}, scheduler="own-rules", **more)


async def test_a_rule_explains_on_the_cluster_and_on_a_snapshot(tmp_path: Path, called: Called) -> None:
    """The snapshot has the annotation that a rule reads, and no other."""
    file = tmp_path / "snap.json.gz"
    async with embedded(tmp_path) as cluster:
        for name, price in (("a", "1.00"), ("b", "0.10"), ("c", "0.50")):
            annotations = {PRICE: price, f"example.com/{SECRET}": SECRET}
            labels = {RACK: "full" if name == "a" else "free"}
            cluster.store.create(NODE, "", make_node(name, labels=labels, annotations=annotations))
        for name in ("one", "two"):
            cluster.store.create(POD, "default", _pod(name, node="a"))
        cluster.store.create(POD, "default", _pod("new"))
        hold_lease(cluster)
        live = await called("explain", "new", "-o", "json", *FLAGS)
        assert (await called("snapshot", "-o", str(file), *FLAGS))[0] == 0
    kept = await called("explain", "new", "-o", "json", "--on", str(file), *FLAGS)
    assert (live[0], json.loads(live[1])) == (0, json.loads(kept[1]))
    (best, other) = json.loads(live[1])["scores"]
    assert (best["node"], best["scores"]["CheaperNodes"], other["node"]) == ("b", 1000, "c")
    text = gzip.decompress(file.read_bytes()).decode()
    assert PRICE in text
    assert SECRET not in text
    notebook = await asyncio.to_thread(
        Cluster.from_snapshot, file, plugins=[EXAMPLES], config=EXAMPLES / "configuration.yaml"
    )
    decision = notebook.decide("new")
    assert (decision.node, decision.refused_by) == ("b", {"a": "TeamPerRack"})


async def test_mistakes_are_told_by_every_command(tmp_path: Path, called: Called) -> None:
    """One line each, and exit code 2; before anything is asked of a cluster."""
    broken = tmp_path / "broken.py"
    broken.write_text("import missing")
    flags = ("--plugins", str(broken), "--kubeconfig", str(tmp_path / "absent"))
    for command in (("explain", "p"), ("simulate", "-f", "x"), ("snapshot",), ("run",)):
        code, _, err = await called(*command, *flags)
        told = "DIR/broken.py: line 1: ModuleNotFoundError: No module named 'missing'\n"
        assert (code, err) == (2, told), command


@pytest.mark.parametrize("name", ["Json", "Class", "Scheduler", "AffinityScheduler", "Numpy", "lower"])
async def test_a_rule_is_not_written_where_its_test_could_not_import_it(
    name: str, tmp_path: Path, called: Called, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file would take the place of a module, or be no module's."""
    monkeypatch.chdir(tmp_path)
    code, _, line = await called("plugins", "new", name)
    assert (code, line.count("\n")) == (2, 1)
    assert line.startswith("plugins new: NAME: found ")
    assert list(tmp_path.iterdir()) == []
