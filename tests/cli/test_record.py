"""`record` on the embedded cluster, and `shadow` over what it recorded."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import signal
import stat
import sys
import zlib
from pathlib import Path

import pytest

from scheduler.sandbox.devcluster.kinds import POD
from tests.cli.conftest import Called
from tests.cli.test_commands import SECRET, bind_pod, served, web
from tests.cli.test_shadow import ROLE
from tests.support import accounts, build
from tests.support.forking import forked
from tests.support.waiting import until

OF = ("--of", "affinity-scheduler")


def recording(path: Path, *lines: object) -> Path:
    """Write a recording of one node and these objects of pods, ten seconds apart."""
    node = {"atS": 0, "kind": "Node", "object": build.node("n", allocatable={"cpu": "1"})}
    head = {"apiVersion": "affinity-scheduler.io/v1", "kind": "ClusterRecording"}
    changes = [{"atS": 10 * number + 1, "kind": "Pod", "object": pod} for number, pod in enumerate(lines)]
    whole = [head, node, {"atS": 0.5, "kind": "Synced"}, *changes]
    path.write_text("".join(json.dumps(line) + "\n" for line in whole))
    return path


def pod(name: str, cpu: str, node: str | None = None) -> build.Json:
    made = build.pod(name, node=node, cpu=cpu)
    made["spec"]["schedulerName"] = "affinity-scheduler"
    return made


async def test_what_was_recorded_is_compared(tmp_path: Path, called: Called) -> None:
    """With the rights of manifests/shadow. A pod is bound while the recording runs."""
    file = tmp_path / "day.jsonl.gz"
    async with served(tmp_path) as cluster:
        kubeconfig = accounts.person_kubeconfig(cluster, tmp_path, ROLE)
        process = await forked("scheduler", "record", "-o", str(file), "--kubeconfig", kubeconfig)
        assert b"Recording changes" in await process.stderr.readline()
        made = web("new")
        made["spec"].pop("affinity")
        made["metadata"]["labels"] = {"app": "other"}
        await bind_pod(cluster, cluster.store.create(POD, "default", made), "node-0005", "{}")
        await until(lambda: asyncio.to_thread(_shows_bind, file), what="the bind in the file")
        process.send_signal(signal.SIGTERM)
        _, err = await process.communicate()
    assert (process.returncode, err.decode().startswith(f"{file}: ")) == (0, True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert SECRET not in gzip.decompress(file.read_bytes()).decode()
    code, out, err_text = await called("shadow", "--recording", str(file), *OF, "-o", "json")
    report = json.loads(out)
    assert (code, err_text) == (0, "")
    assert (report["bound"], report["alike"], report["differences"]) == (1, 1, [])


def _shows_bind(file: Path) -> bool:
    body = zlib.decompressobj(wbits=31).decompress(file.read_bytes())
    return any(b'"name":"new"' in line and b'"nodeName"' in line for line in body.splitlines())


async def test_a_recording_answers_what_another_configuration_would_have_done(
    tmp_path: Path, called: Called
) -> None:
    """The node has room for the pod, which another one's rule of one pod per node would have kept out."""
    config = tmp_path / "mine.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- schedulerName: strict\n  plugins: {multiPoint: {enabled: [{name: OnePerNode}]}}\n"
    )
    (tmp_path / "one_per_node.py").write_text(PLUGIN)
    lines = [pod("a", "100m", "n"), pod("b", "100m"), pod("b", "100m", "n")]
    file = str(recording(tmp_path / "day.jsonl", *lines))
    assert (await called("shadow", "--recording", file, *OF))[0] == 0
    mine = ("--config", str(config), "--plugins", str(tmp_path / "one_per_node.py"))
    for profile in ((), ("--profile", "strict")):
        code, out, _ = await called("shadow", "--recording", file, *OF, *mine, *profile)
        assert code == 1
        assert "n is refused here: node(s) had a pod" in out
    code, out, err = await called("shadow", "--recording", file, *mine, "--profile", "loose")
    assert (code, out, err) == (2, "", "--profile: found loose, expected one of strict\n")


PLUGIN = """
from scheduler.sdk.plugin import NodeByNode


class OnePerNode(NodeByNode):
    name = "OnePerNode"
    reason = "node(s) had a pod"

    def fits(self, pod, node):
        return node.requested("pods") == 0
"""


@pytest.mark.parametrize("suffix", ["", ".gz"])
async def test_a_recording_that_was_cut_is_compared_up_to_there(
    suffix: str, tmp_path: Path, called: Called
) -> None:
    whole = recording(tmp_path / "day.jsonl", pod("a", "1"), pod("a", "1", "n"), pod("later", "1"))
    cut = tmp_path / f"cut.jsonl{suffix}"
    body = whole.read_bytes()[:-20]
    packer = zlib.compressobj(wbits=31)
    packed = packer.compress(body) + packer.flush(zlib.Z_SYNC_FLUSH)
    cut.write_bytes(packed if suffix else body)
    code, out, err = await called("shadow", "--recording", str(cut), *OF)
    assert (code, out.splitlines()[0]) == (
        0,
        "1 pod bound by affinity-scheduler: 1 as we would (0 among equals), 0 otherwise",
    )
    assert err.splitlines()[0].endswith(": the recording was not finished")


async def test_a_recording_is_a_snapshot_of_its_beginning(tmp_path: Path, called: Called) -> None:
    """What came after the first lists is not read; nor does a cut at the end matter."""
    file = recording(tmp_path / "day.jsonl", pod("a", "1", "n"))
    lines = file.read_text().splitlines(keepends=True)
    first = {"atS": 0, "kind": "Pod", "object": pod("p", "1")}
    file.write_text("".join([*lines[:2], json.dumps(first) + "\n", *lines[2:]])[:-20])
    code, out, err = await called("explain", "p", "--on", str(file))
    assert (code, err) == (0, "")
    assert "fits on 1 of 1 node" in out
    file.write_text("".join(lines[:2]))
    code, out, err = await called("explain", "p", "--on", str(file))
    assert (code, out) == (2, "")
    assert err.endswith("expected the line Synced, which ends the first lists\n")


HEAD = '{"apiVersion":"affinity-scheduler.io/v1","kind":"ClusterRecording"}\n'


NOT_RECORDINGS = {
    "empty": (b"", "expected a ClusterRecording, made by the command record"),
    "no text": (b"\x00\xff\n", "expected a ClusterRecording, made by the command record"),
    "another object": (b'{"kind":"Pod"}\n', "apiVersion: found nothing, expected"),
    "a line without its end": (b'{"kind":"Pod"}', "apiVersion: found nothing, expected"),
    "no line": (HEAD.encode() + b"{}\n", ", line 2: found Object missing"),
    "no text in a line": (HEAD.encode() + b"\xff\n", ", line 2: found "),
    "deep": (HEAD.encode() + b'{"atS":1,"kind":"Pod","object":' + b"[" * 100_000 + b"\n", ", line 2: found "),
    "long": (HEAD.encode() + b"x" * 9_000_000, "a line of more than"),
    "nothing": (HEAD.encode(), "expected the line Synced, which ends the first lists"),
    "backwards": (
        HEAD.encode() + b'{"atS":2,"kind":"Synced"}\n{"atS":1.5,"kind":"Pod"}\n',
        ", line 3: atS: found 1.5, expected 2 or more",
    ),
    "two files": (gzip.compress(HEAD.encode()) * 2, "found more data after its end"),
    "damaged": (gzip.compress(HEAD.encode())[:12] + b"x" * 30, "a damaged gzip file"),
}


@pytest.mark.parametrize(("content", "message"), NOT_RECORDINGS.values(), ids=NOT_RECORDINGS)
async def test_what_is_no_recording_is_one_line(
    content: bytes, message: str, tmp_path: Path, called: Called
) -> None:
    file = tmp_path / "day.jsonl.gz"
    file.write_bytes(content)
    code, out, err = await called("shadow", "--recording", str(file))
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert err.startswith(str(file))
    assert message in err


async def test_what_a_recording_missed_for_a_while_is_not_compared(tmp_path: Path, called: Called) -> None:
    whole = recording(tmp_path / "day.jsonl", pod("a", "1"), pod("a", "1", "n"))
    lines = whole.read_text().splitlines()
    lines.insert(4, '{"atS":2,"kind":"Interrupted"}')
    whole.write_text("\n".join(lines) + "\n")
    code, out, err = await called("shadow", "--recording", str(whole), *OF)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].startswith("1 bound pod not seen before the bind, or while a watch was")


async def test_a_mistyped_scheduler_is_told_beside_those_that_pods_name(
    tmp_path: Path, called: Called
) -> None:
    file = recording(tmp_path / "day.jsonl", pod("a", "1"), pod("a", "1", "n"))
    code, out, err = await called("shadow", "--recording", str(file), "--of", "affinity-sheduler")
    assert (code, err) == (0, "")
    assert out.splitlines()[2:] == [
        "no pod names affinity-sheduler: the pods that were seen name affinity-scheduler"
    ]


async def test_an_object_that_cannot_be_read_is_ignored(tmp_path: Path, called: Called) -> None:
    broken = {"metadata": {"name": "x", "namespace": "default"}, "spec": {"containers": 3}}
    file = recording(tmp_path / "day.jsonl", broken, {}, [], pod("a", "1"), pod("a", "1", "n"))
    code, out, err = await called("shadow", "--recording", str(file), *OF)
    assert (code, err) == (0, "")
    assert out.startswith("1 pod bound by affinity-scheduler: 1 as we would")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("record",), "the following arguments are required: -o/--output"),
        (("record", "-o", "x", "--max-size", "5"), "--max-size: found 5, expected a size from 1Mi"),
        (("record", "-o", "x", "--max-size", "1Ki"), "--max-size: found 1Ki, expected a size from 1Mi"),
        (("record", "-o", "x", "--for", "-1s"), "expected"),
        (("record", "-o", ""), "--output: found '', expected the name of a file to write"),
        (("record", "-o", "-"), "--output: found '-', expected the name of a file to write"),
        (("shadow", "--of", ""), "--of: found '', expected the schedulerName of the pods to compare"),
        (("shadow", "--recording", ""), "--recording: found '', expected a file made by the command record"),
        (("shadow", "--recording", "x", "--kubeconfig", ""), "--recording: found --kubeconfig as well"),
        (("record", "-o", "x", "--kubeconfig", "/nothing"), "/nothing"),
        (("shadow", "--recording", "/nothing"), "/nothing: found no such file"),
        (("shadow", "--recording", "/"), "/: found Is a directory"),
        (("shadow", "--recording", "x", "--master", "http://x"), "--recording: found --master as well"),
        (("shadow", "--race-window", "0s"), "--race-window: found 0s, expected a duration such as 2s"),
        (("shadow", "--plugins", "/nothing"), "/nothing"),
        (("shadow", "--feature-gates", "A"), "A"),
    ],
)
async def test_wrong_flags_are_one_line(flags: tuple[str, ...], message: str, called: Called) -> None:
    code, out, err = await called(*flags)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert message in err


async def test_two_runs_with_one_seed_are_equal_and_the_exit_code_tells_what_is_unproven(
    tmp_path: Path, called: Called
) -> None:
    """Of ten equal nodes the full one was taken, ten seconds after another bind."""
    file = recording(tmp_path / "day.jsonl", pod("p", "1"), pod("big", "3", "n0"), pod("p", "1", "n0"))
    nodes = [
        {"atS": 0, "kind": "Node", "object": build.node(f"n{number}", allocatable={"cpu": "8"})}
        for number in range(10)
    ]
    head, *others = file.read_text().splitlines()
    file.write_text("\n".join([head, *map(json.dumps, nodes), *others[1:], ""]))
    runs = []
    for hash_seed, seed in (("1", "1"), ("2", "1"), ("2", "5")):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "scheduler", "shadow", "--recording", str(file), *OF),
            *("--seed", seed, "-o", "json"),
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=asyncio.subprocess.PIPE,
        )
        printed, _ = await process.communicate()
        runs.append((process.returncode, printed))
    assert runs[0] == runs[1] != runs[2]
    assert {code for code, _ in runs} == {1}
    # The same bind, when the other pod came less than two seconds before.
    file.write_text(file.read_text().replace('"atS": 11,', '"atS": 20,'))
    code, text, _ = await called("shadow", "--recording", str(file), *OF, "-o", "json")
    (found,) = json.loads(text)["differences"]
    assert (code, found["cause"]) == (0, "race")
    assert "proven: not so if default/big came in the other order" in found["explanation"]
