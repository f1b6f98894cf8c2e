"""Traces as clusters publish them: columns, units, times, and what is wrong with a file."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from scheduler.errors import SettingsError
from tests.proof.replay.__main__ import main
from tests.proof.replay.jobs import BLOCK, RACK, Job, comparable, jobs_of, node_objects
from tests.proof.replay.trace import TraceNode, TracePod, read_nodes, read_pods

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{i},96000,786432,8,A100\n" for i in range(4))
HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"


def _written(folder: Path, pods: str, nodes: str = NODES) -> tuple[Path, Path]:
    (folder / "nodes.csv").write_text(nodes)
    (folder / "pods.csv").write_text(pods)
    return folder / "nodes.csv", folder / "pods.csv"


def _pods(folder: Path, text: str, **columns: str) -> list[TracePod]:
    return read_pods(_written(folder, text)[1], columns).pods


def _jobs(folder: Path, text: str, **columns: str) -> list[Job]:
    return jobs_of(_pods(folder, text, **columns))


def test_pods_of_one_second_that_are_alike_are_a_job(tmp_path: Path) -> None:
    """Alibaba's trace of 2023; pods that others come between are of the job, too."""
    text = HEAD
    for name, gpus, share, ended in (("a", 4, 1000, 115), ("c", 1, 250, 65), ("b", 4, 1000, 315)):
        text += f"{name},1000,1024,{gpus},{share},A100|V100,LS,Succeeded,10,{ended},15\n"
    text += "never,1000,1024,1,1000,nan,LS,Pending,20,25,\n"
    listed = read_pods(_written(tmp_path, text)[1], {})
    pair, single = jobs_of(listed.pods)
    assert (listed.n_never_ran, listed.has_times) == (1, True)
    assert (len(pair.pods), pair.created_s, pair.duration_s, pair.gpu_milli) == (2, 0, 300, 8000)
    assert (len(single.pods), single.gpu_milli) == (1, 250)
    assert single.pods[0].models == frozenset({"A100", "V100"})


def test_rows_with_the_name_of_a_job_are_one(tmp_path: Path) -> None:
    """Alibaba's tasks of 2020, in per cent of a CPU and a GPU, and GB: a job has the pods of all of its tasks."""
    text = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"
    text += "j1,ps,1,Terminated,100,400,600,29.3,,\nj1,worker,3,Terminated,110,300,600,2,50,T4\n"
    text += "j2,worker,1,Waiting,,,600,2,50,T4\n"
    (job,) = _jobs(tmp_path, text)
    assert [(pod.cpu_milli, pod.memory_mib, pod.gpu_milli) for pod in job.pods] == [
        (6000, 30004, 0),
        *[(6000, 2048, 500)] * 3,
    ]
    assert (job.created_s, job.duration_s) == (10 - 0, 300)


def test_replicas_of_a_row_and_their_duration(tmp_path: Path) -> None:
    text = "job_name,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n"
    (job,) = _jobs(tmp_path, text + "437260,A100-SXM4-80GB,15,1,16,9589663,120,HP\n")
    assert (len(job.pods), job.pods[0].cpu_milli, job.gpu_milli, job.duration_s) == (16, 15_000, 16_000, 120)


def test_totals_over_hosts_and_dates(tmp_path: Path) -> None:
    """Helios: a row has the GPUs of all of a job's nodes, and dates."""
    text = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    text += "7,u,v,16,32,2,COMPLETED,2020-04-01 00:01:45,2020-04-01 00:02:00,2020-04-01 01:02:00,3600,15\n"
    text += "8,u,v,1,4,1,COMPLETED,2020-04-01 00:01:55,,,60,0\n"
    two, one = _jobs(tmp_path, text)
    assert [(pod.gpu_milli, pod.cpu_milli) for pod in two.pods] == [(8000, 16_000)] * 2
    assert (two.created_s, two.duration_s, one.created_s, one.duration_s) == (0, 3600, 10, 60)


def test_pods_that_were_there_before_the_trace_and_pods_without_an_end(tmp_path: Path) -> None:
    """Alibaba's trace of 2025: pods of one service are no job, and memory is in GiB."""
    text = "instance_sn,role,app_name,cpu_request,gpu_request,memory_request"
    text += ",creation_time,scheduled_time,deletion_time\n"
    text += "i0,HN,a,12,1,120.0,,,\ni1,HN,a,12,1,120.0,,,500.0\ni2,CN,a,64,0,320.0,50.0,50.0,150.0\n"
    text += "i3,CN,a,1,0,1,60.0,,70\n"
    jobs = _jobs(tmp_path, text)
    assert [(job.created_s, job.duration_s) for job in jobs] == [(0, math.inf), (0, 450), (0, 100)]
    assert jobs[0].pods[0].memory_mib == 120 * 1024


def test_a_list_without_times_comes_in_its_order_and_runs_on(tmp_path: Path) -> None:
    """The sampled lists of Alibaba's trace of 2023."""
    listed = read_pods(
        _written(tmp_path, "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n" + "p,1,1,1,500\n" * 3)[1], {}
    )
    assert not listed.has_times
    assert [(job.created_s, job.duration_s) for job in jobs_of(listed.pods)] == [
        (n, math.inf) for n in range(3)
    ]


def test_suffixes_delimiters_fractions_and_times_in_milliseconds(tmp_path: Path) -> None:
    text = "\ufeffPod Name;CPU;Memory;GPUs;Create Time;Duration\nx;500m;64Gi;0.5;1700000000000;60\n"
    (pod,) = _pods(tmp_path, text)
    assert (pod.cpu_milli, pod.memory_mib, pod.gpu_milli) == (500, 65_536, 500)
    assert (pod.created_s, pod.duration_s) == (1_700_000_000, 60)


def test_other_columns_are_named_with_their_units(tmp_path: Path) -> None:
    text = "who,cards,ram,at,minutes,copies,job_id\nx,2,7,3,5,3,one\n"
    columns = {
        "pod": "who",
        "gpus": "cards",
        "memory_mib": "ram*1024",
        "created_s": "at",
        "duration_s": "minutes*60",
        "replicas": "copies",
    }
    (job,) = _jobs(tmp_path, text, **columns)
    assert (len(job.pods), job.duration_s, job.gpu_milli, job.pods[0].memory_mib) == (3, 300, 6000, 7168)


def test_racks_and_blocks_of_the_file_are_kept_and_missing_ones_drawn_within_them() -> None:
    def levels(*nodes: tuple[str, str]) -> list[tuple[str, str]]:
        traced = [
            TraceNode(f"m_{i}", 1, 1, 8, rack=rack, block=block) for i, (rack, block) in enumerate(nodes)
        ]
        return [
            (node["metadata"]["labels"][BLOCK], node["metadata"]["labels"][RACK])
            for node in node_objects(traced, 2, 1)
        ]

    assert levels(("r 1", "b"), ("r 2", "b")) == [("b", "r-1"), ("b", "r-2")]
    assert levels(("", "b"), ("", "c"), ("", "b"), ("", "b")) == [
        ("b", "b-rack-0"),
        ("c", "c-rack-0"),
        ("b", "b-rack-0"),
        ("b", "b-rack-1"),
    ]
    assert levels(("r", ""), ("s", ""), ("r", "")) == [("block-0", "r"), ("block-1", "s"), ("block-0", "r")]
    assert levels(*[("", "")] * 3) == [("block-0", "rack-0"), ("block-0", "rack-0"), ("block-1", "rack-1")]


def test_a_request_is_dropped_where_no_node_says_how_much_it_has() -> None:
    pod = TracePod("p", "", 1, 100, 100, 1000, frozenset(), 0.0, 1.0)
    (left,) = comparable([TraceNode("n", 100, 0, 8)], [pod])
    assert (left.cpu_milli, left.memory_mib, left.gpu_milli) == (100, 0, 1000)


@pytest.mark.parametrize(
    ("pods", "flags", "problem"),
    [
        (
            HEAD + "a,1,1,four,1000,,LS,Running,1,2,1\n",
            [],
            "line 2: num_gpu: found 'four', expected a number",
        ),
        (
            HEAD + "a,1,1,4,1000,,LS,Running,-1,2,1\n",
            [],
            "line 2: creation_time: found '-1', expected seconds of",
        ),
        ("name,cpu\n", [], "line 1: found name, cpu, expected one of the columns num_gpu, gpus"),
        ("", [], "line 1: found nothing, expected one of the columns num_gpu"),
        (HEAD, [], "found no pod that ran, expected some"),
        ("job,gpus,replicas\nj,1,99999\n", [], "line 2: replicas: found 99999, expected at most 10000"),
        (HEAD, ["--column", "gpus=absent"], "--column: found gpus=absent, expected a column of"),
        (HEAD, ["--column", "gpus=num_gpu*x"], "--column: found 'gpus=num_gpu*x', expected WHAT=NAME"),
        (HEAD, ["--column", "cards=num_gpu"], "--column: found 'cards=num_gpu', expected WHAT=NAME"),
        (HEAD, ["--first", "0"], "--first: found 0, expected a number above 0"),
        (HEAD, ["--scheduler-binary", "nowhere"], "--scheduler-binary: found nowhere, expected a file"),
        (HEAD + '"a\n', [], "line 2: found 1 cells, expected 11, as in line 1"),
        (
            HEAD + "a,1,1,4,1000,,LS,Running,1,2,1,6\n",
            [],
            "line 2: found 12 cells, expected 11, as in line 1",
        ),
    ],
)
def test_bad_input_is_one_line(
    pods: str, flags: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes, path = _written(tmp_path, pods)
    assert main(["--nodes", str(nodes), "--pods", str(path), *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line


def test_a_picture_that_cannot_be_written_is_refused_before_the_play(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--svg", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("--svg: found ")


def test_bad_nodes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes, path = _written(tmp_path, HEAD, NODES + "n0,1,1,8,A100\n")
    assert main(["--nodes", str(nodes), "--pods", str(path)]) == 2
    assert "line 6: sn: found 'n0', expected a node once" in capsys.readouterr().err
    assert main(["--nodes", str(nodes)]) == 2
    assert capsys.readouterr().err == "--pods: found nothing, expected a file, as for the other\n"
    with pytest.raises(SettingsError):
        read_nodes(tmp_path / "absent", {})
