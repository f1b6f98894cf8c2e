"""Traces as clusters publish them, and their replay."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.errors import SettingsError
from tests.replay.__main__ import main
from tests.replay.jobs import BLOCK, jobs_of, node_objects
from tests.replay.play import Replay
from tests.replay.trace import read_nodes, read_pods

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{i},96000,786432,8,A100\n" for i in range(4))
HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"


def written(folder: Path, pods: str, nodes: str = NODES) -> tuple[Path, Path]:
    (folder / "nodes.csv").write_text(nodes)
    (folder / "pods.csv").write_text(pods)
    return folder / "nodes.csv", folder / "pods.csv"


def row(name: str, gpus: int, created: int, duration: int, share: int = 1000) -> str:
    return f"{name},1000,1024,{gpus},{share},A100|V100,LS,Succeeded,{created},{created + 5 + duration},{created + 5}\n"


def test_pods_of_one_second_that_are_alike_are_a_job(tmp_path: Path) -> None:
    pods = HEAD + row("a", 4, 10, 100) + row("b", 4, 10, 300) + row("c", 1, 10, 50, share=250)
    pods += "never,1000,1024,1,1000,,LS,Pending,20,,\n"
    _, path = written(tmp_path, pods)
    (pair, single) = sorted(jobs_of(read_pods(path, {})), key=lambda job: -len(job.pods))
    assert (len(pair.pods), pair.duration_s, pair.gpu_milli) == (2, 300, 8000)
    assert (len(single.pods), single.gpu_milli, single.pods[0].models) == (
        1,
        250,
        frozenset({"A100", "V100"}),
    )


def test_other_columns_are_named(tmp_path: Path) -> None:
    _, path = written(tmp_path, "who,cards,at,run_time,instances,job_id\nx,2,7,60,3,one\n")
    columns = {"pod": "who", "gpus": "cards", "created_s": "at", "replicas": "instances"}
    (job,) = jobs_of(read_pods(path, columns))
    assert (len(job.pods), job.created_s, job.duration_s, job.gpu_milli) == (3, 7, 60, 6000)


@pytest.mark.parametrize(
    ("pods", "problem"),
    [
        (
            HEAD + row("a", 4, 10, 100).replace(",4,", ",four,"),
            "line 2: num_gpu: found 'four', expected a number",
        ),
        ("name,cpu\n", "line 1: found name, cpu, expected one of the columns creation_time, submit_time"),
        (HEAD, "found no pod that ran, expected some"),
    ],
)
def test_bad_input_is_one_line(
    pods: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes, path = written(tmp_path, pods)
    assert main(["--nodes", str(nodes), "--pods", str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line
    with pytest.raises(SettingsError):
        read_nodes(tmp_path / "absent", {})


def test_a_group_waits_without_holding_what_a_half_placed_job_holds(tmp_path: Path) -> None:
    """Two jobs of 24 GPUs on 32: pod by pod the second takes the rest, and holds it idle until the first ends."""
    pods = (
        HEAD
        + "".join(row(f"a{i}", 8, 0, 100) for i in range(3))
        + "".join(row(f"b{i}", 8, 1, 100) for i in range(3))
    )
    nodes, path = written(tmp_path, pods)
    jobs, objects = jobs_of(read_pods(path, {})), node_objects(read_nodes(nodes, {}), 2, 2)
    played = {grouped: Replay("", objects, grouped=grouped, seed=1).play(jobs) for grouped in (True, False)}
    for grouped, idle_milli in ((True, 0), (False, 8000)):
        assert [result.waited_s for result in played[grouped].results] == [0, 99]
        held, working = next(
            (held, working) for second, held, working in played[grouped].allocated if second == 1
        )
        assert held - working == idle_milli
        assert played[grouped].unplaced == []


def test_a_job_that_fits_into_no_block_never_runs_as_a_group(tmp_path: Path) -> None:
    pods = HEAD + "".join(row(f"a{i}", 8, 0, 100) for i in range(4))
    nodes, path = written(tmp_path, pods)
    objects = node_objects(read_nodes(nodes, {}), 1, 2)
    assert len({node["metadata"]["labels"][BLOCK] for node in objects}) == 2
    jobs = jobs_of(read_pods(path, {}))
    assert [len(Replay("", objects, grouped=True, seed=1).play(jobs).unplaced)] == [1]


def test_the_table_and_the_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = HEAD + "".join(row(f"p{i}", 2, i // 2, 60) for i in range(8))
    nodes, path = written(tmp_path, pods)
    assert main(["--nodes", str(nodes), "--pods", str(path), "--svg", str(tmp_path / "gpus.svg")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4 nodes with 32 GPUs; 4 jobs, of which 4 have two pods or more."
    assert [line.split()[0] for line in lines[1:]] == ["PLACED", "with", "pod"]
    assert (tmp_path / "gpus.svg").read_text().count("<polyline") == 2
