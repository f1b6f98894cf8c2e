"""A trace that is played: jobs that wait, run and end, and what is shown of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.proof.replay.__main__ import main
from tests.proof.replay.drawn import drawn_trace
from tests.proof.replay.jobs import BLOCK, RACK, Job, Placing, jobs_of, node_objects
from tests.proof.replay.kube import kube_cluster
from tests.proof.replay.play import Cluster, Played, Replay, Simulated
from tests.proof.replay.trace import TraceNode, TracePod
from tests.support.apiserver import assets
from tests.support.build import Json


def _nodes(n: int, rack_size: int = 2, block_size: int = 2) -> list[Json]:
    return node_objects([TraceNode(f"n{i}", 96_000, 786_432, 8) for i in range(n)], rack_size, block_size)


def _jobs(*shapes: tuple[int, float, float]) -> list[Job]:
    """Return jobs of so many pods with eight GPUs each, from this second on, for so many seconds."""
    return jobs_of(
        [
            TracePod(f"p{i}", f"j{i}", n, 1000, 1024, 8000, frozenset(), created_s, duration_s)
            for i, (n, created_s, duration_s) in enumerate(shapes)
        ]
    )


def _played(nodes: Sequence[Json], jobs: Sequence[Job], placing: Placing) -> Played:
    return Replay("", Simulated(nodes, placing, seed=1), nodes).play(jobs)


def test_a_group_waits_without_holding_what_a_half_placed_job_holds() -> None:
    """Two jobs of 24 GPUs on 32: pod by pod the second takes the rest, and holds it idle until the first ends."""
    nodes, jobs = _nodes(4), _jobs((3, 0, 100), (3, 1, 100))
    for placing, idle_milli in (
        (Placing.IN_ONE_BLOCK, 0),
        (Placing.IN_FEW_BLOCKS, 0),
        (Placing.POD_BY_POD, 8000),
    ):
        played = _played(nodes, jobs, placing)
        assert [result.waited_s for result in played.results] == [0, 99]
        held, working = next((held, working) for second, held, working in played.allocated if second == 1)
        assert held - working == idle_milli
        assert played.unplaced == []


def test_a_job_that_no_block_holds_never_runs_in_one_block() -> None:
    nodes, jobs = _nodes(4, rack_size=1), _jobs((4, 0, 100))
    assert len({node["metadata"]["labels"][BLOCK] for node in nodes}) == 2
    assert len(_played(nodes, jobs, Placing.IN_ONE_BLOCK).unplaced) == 1
    (result,) = _played(nodes, jobs, Placing.IN_FEW_BLOCKS).results
    assert (result.n_blocks, result.n_racks, result.n_hosts) == (2, 4, 4)


def test_a_job_without_an_end_keeps_its_gpus() -> None:
    played = _played(_nodes(4), _jobs((3, 0, math.inf), (2, 1, 10), (1, 2, 10)), Placing.IN_ONE_BLOCK)
    assert [result.job.name for result in played.results] == ["job-0", "job-2"]
    assert [job.name for job in played.unplaced] == ["job-1"]
    assert played.allocated[-1] == (12, 24_000, 24_000)


def test_levels_of_the_drawn_trace_nest() -> None:
    traced, pods = drawn_trace(1)
    labels = [node["metadata"]["labels"] for node in node_objects(traced, 16, 4)]
    assert len({each[BLOCK] for each in labels}) == 2
    assert len({each[RACK] for each in labels}) == len({(each[BLOCK], each[RACK]) for each in labels}) == 8
    assert pods == drawn_trace(1)[1] != drawn_trace(2)[1]


def test_the_table_and_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    svg = tmp_path / "new" / "gpus.svg"
    assert main(["--first", "5", "--only-nodes", "20", "--squeeze", "2", "--svg", str(svg)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("20 nodes with 160 GPUs; 5 jobs, of which ")
    assert lines[1] == "Levels: no racks in the file, drawn: 16 nodes a rack, 4 racks a block."
    assert [line.split()[0] for line in lines[2:]] == ["PLACED", "groups", "groups", "pod", "The"]
    drawn = ElementTree.fromstring(svg.read_text())
    assert [child.tag.rpartition("}")[2] for child in drawn].count("polyline") == 2 * 3
    assert "prefers-color-scheme:dark" in svg.read_text()


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize("grouped", [True, False])
def test_kube_scheduler_plays_the_same_moments(grouped: bool) -> None:
    """Its waiting pods are tried again when others leave; with groups it holds nothing for a job that waits."""
    binaries = assets()
    if binaries is None or not (binaries / "kube-scheduler").is_file():
        pytest.skip("KUBEBUILDER_ASSETS names no folder with kube-scheduler")
    nodes, jobs = _nodes(4), _jobs((3, 0, 100), (3, 1, 100), (1, 2, 5))
    with kube_cluster(binaries / "kube-scheduler", nodes, grouped=grouped) as opened:
        cluster: Cluster = opened
        played = Replay("", cluster, nodes).play(jobs)
    waits = {result.job.name: result.waited_s for result in played.results}
    assert waits == {"job-0": 0, "job-1": 99, "job-2": 0 if grouped else 98}
    held, working = next((held, working) for second, held, working in played.allocated if second == 1)
    assert held - working == (0 if grouped else 8000)
