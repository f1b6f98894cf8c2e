"""What their page says of all examples together: where they all fit, and that most pods do not fit on six nodes."""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shlex
from pathlib import Path

import pytest

from scheduler.cli.main import main
from scheduler.sandbox.devcluster import command
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.tools.explain.simulation import groups
from tests.support.manifest_files import MANIFESTS

EXAMPLES = MANIFESTS / "examples"
PAGE = (EXAMPLES / "README.md").read_text()


@pytest.fixture(autouse=True)
def _one_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try one more group of each kind: how many fit takes a hundred times as long as the examples, and is not asked."""
    monkeypatch.setattr(groups, "_MOST_PODS", 1)


async def simulated(
    cluster: DevCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, int, int]:
    """Return the number of pods of all examples, of those that fit, and of the fitting ones for no profile here."""
    async with cluster:
        kubeconfig = tmp_path / "kubeconfig"
        cluster.write_kubeconfig(kubeconfig)
        arguments = ["simulate", "-f", str(EXAMPLES), "-o", "json", "--kubeconfig", str(kubeconfig)]
        await asyncio.to_thread(main, arguments)
    found = json.loads(capsys.readouterr().out)
    foreign = [each for each in found if any("no profile" in note for note in each.get("notes", ()))]
    return (
        sum(each["replicas"] for each in found),
        sum(each["placed"] for each in found),
        sum(each["placed"] for each in foreign),
    )


async def test_all_pods_fit_on_the_cluster_that_the_page_proposes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command is taken from the page. One pod does not fit, that of 09-backup."""
    (text,) = re.findall(r"^affinity-scheduler devcluster (.*--node-label.*\\\n.*)$", PAGE, re.MULTILINE)
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    args = parser.parse_args(shlex.split(text.replace("\\\n", " ")))
    labels = dict(map(command.node_label, args.node_label))
    cluster = DevCluster(
        nodes=args.nodes,
        zones=args.zones,
        node_labels=labels,
        controllers=True,
        gpus_per_node=args.gpus,
        gpus_per_fabric=args.gpu_fabric,
    )
    n_pods, n_placed, n_foreign = await simulated(cluster, tmp_path, capsys)
    assert (n_placed, n_foreign) == (n_pods - 1, 6)
    assert f"all {n_pods} pods of all examples" in " ".join(PAGE.split())


async def test_most_pods_stay_pending_on_six_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = DevCluster(nodes=6, zones=3, controllers=True)
    n_pods, n_placed, _ = await simulated(cluster, tmp_path, capsys)
    assert n_placed < n_pods / 2
