"""`shadow`: flags that make no sense, and recordings."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import sys
import zlib
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.cli.conftest import Called, refused
from tests.support import build

OF = ("--of", "affinity-scheduler")


@pytest.mark.parametrize(
    "flags",
    [
        ("--for", "soon"),
        ("--for", "0s"),
        ("--percentage-of-nodes-to-score", "101"),
        ("--of", ""),
        ("--recording", ""),
        ("--recording", "x", "--kubeconfig", ""),
        ("--recording", "/nothing"),
        ("--recording", "/"),
        ("--recording", "x", "--master", "http://x"),
        ("--race-window", "0s"),
        ("--plugins", "/nothing"),
        ("--feature-gates", "A"),
    ],
    ids=" ".join,
)
async def test_wrong_flags_are_one_line(
    flags: tuple[str, ...], called: Called, snapshot: SnapshotAssertion
) -> None:
    assert await refused(called, "shadow", *flags) == snapshot


# -- recordings ----------------------------------------------------------------------------------------------


def recording(path: Path, *lines: object) -> Path:
    """Write a recording of one node and these objects of pods, ten seconds apart."""
    node = {"atS": 0, "kind": "Node", "object": build.node("n", allocatable={"cpu": "1"})}
    head = {"apiVersion": "affinity-scheduler.io/v1", "kind": "ClusterRecording"}
    changes = [{"atS": 10 * number + 1, "kind": "Pod", "object": pod} for number, pod in enumerate(lines)]
    whole = [head, node, {"atS": 0.5, "kind": "Synced"}, *changes]
    path.write_text("".join(json.dumps(line) + "\n" for line in whole))
    return path


def pod(name: str, cpu: str, node: str | None = None) -> build.Json:
    return build.pod(name, node=node, cpu=cpu, spec={"schedulerName": "affinity-scheduler"})


@pytest.fixture
def day(tmp_path: Path) -> Path:
    """Return the recording of a pod that is bound."""
    return recording(tmp_path / "day.jsonl", pod("a", "1"), pod("a", "1", "n"))


async def test_a_recording_answers_what_another_configuration_would_have_done(
    tmp_path: Path, called: Called, snapshot: SnapshotAssertion
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
    told = [
        await called("shadow", "--recording", file, *OF, *mine, *profile)
        for profile in ((), ("--profile", "strict"))
    ]
    assert (told[0][0], told[0][1]) == (1, snapshot)
    assert "n is refused here: node(s) had a pod" in told[0][1]
    assert told[0] == told[1]
    assert await called("shadow", "--recording", file, *mine, "--profile", "loose") == (2, "", snapshot)


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
    assert (code, out.startswith("1 pod bound by affinity-scheduler: 1 as we would")) == (0, True)
    assert err.splitlines()[0].endswith(": the recording was not finished")


async def test_a_recording_is_a_snapshot_of_its_beginning(
    tmp_path: Path, called: Called, snapshot: SnapshotAssertion
) -> None:
    """What came after the first lists is not read; nor does a cut at the end matter."""
    file = recording(tmp_path / "day.jsonl", pod("a", "1", "n"))
    lines = file.read_text().splitlines(keepends=True)
    first = {"atS": 0, "kind": "Pod", "object": pod("p", "1")}
    file.write_text("".join([*lines[:2], json.dumps(first) + "\n", *lines[2:]])[:-20])
    code, out, err = await called("explain", "p", "--on", str(file))
    assert (code, err, "fits on 1 of 1 node" in out) == (0, "", True)
    file.write_text("".join(lines[:2]))
    assert await called("explain", "p", "--on", str(file)) == (2, "", snapshot)


HEAD = b'{"apiVersion":"affinity-scheduler.io/v1","kind":"ClusterRecording"}\n'
NOT_RECORDINGS = {
    "empty": b"",
    "no text": b"\x00\xff\n",
    "another object": b'{"kind":"Pod"}\n',
    "a line without its end": b'{"kind":"Pod"}',
    "no line": HEAD + b"{}\n",
    "no text in a line": HEAD + b"\xff\n",
    "deep": HEAD + b'{"atS":1,"kind":"Pod","object":' + b"[" * 100_000 + b"\n",
    "long": HEAD + b"x" * 9_000_000,
    "nothing": HEAD,
    "backwards": HEAD + b'{"atS":2,"kind":"Synced"}\n{"atS":1.5,"kind":"Pod"}\n',
    "two files": gzip.compress(HEAD) * 2,
    "damaged": gzip.compress(HEAD)[:12] + b"x" * 30,
}


@pytest.mark.parametrize("content", NOT_RECORDINGS.values(), ids=NOT_RECORDINGS)
async def test_what_is_no_recording_is_one_line(
    content: bytes, tmp_path: Path, called: Called, snapshot: SnapshotAssertion
) -> None:
    file = tmp_path / "day.jsonl.gz"
    file.write_bytes(content)
    assert await refused(called, "shadow", "--recording", str(file)) == snapshot


async def test_what_a_recording_missed_for_a_while_is_not_compared(day: Path, called: Called) -> None:
    lines = day.read_text().splitlines()
    lines.insert(4, '{"atS":2,"kind":"Interrupted"}')
    day.write_text("\n".join(lines) + "\n")
    code, out, err = await called("shadow", "--recording", str(day), *OF)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1].startswith("1 bound pod not seen before the bind, or while a watch was")


async def test_a_mistyped_scheduler_is_told_beside_those_that_pods_name(
    day: Path, called: Called, snapshot: SnapshotAssertion
) -> None:
    code, out, err = await called("shadow", "--recording", str(day), "--of", "affinity-sheduler")
    assert (code, out, err) == (0, snapshot, "")


async def test_an_object_that_cannot_be_read_is_ignored(tmp_path: Path, called: Called) -> None:
    broken = {"metadata": {"name": "x", "namespace": "default"}, "spec": {"containers": 3}}
    file = recording(tmp_path / "day.jsonl", broken, {}, [], pod("a", "1"), pod("a", "1", "n"))
    code, out, err = await called("shadow", "--recording", str(file), *OF)
    assert (code, err) == (0, "")
    assert out.startswith("1 pod bound by affinity-scheduler: 1 as we would")


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
    asked = ("shadow", "--recording", str(file), *OF, "-o", "json")
    runs = [await called(*asked, "--seed", seed) for seed in ("1", "5")]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scheduler", *asked, "--seed", "1"),
        env={**os.environ, "PYTHONHASHSEED": "1"},
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    assert runs[0] == (process.returncode, printed.decode(), "")
    assert runs[0] != runs[1]
    assert [code for code, *_ in runs] == [1, 1]
    # The same bind, when the other pod came less than two seconds before.
    file.write_text(file.read_text().replace('"atS": 11,', '"atS": 20,'))
    code, text, _ = await called(*asked)
    (found,) = json.loads(text)["differences"]
    assert (code, found["cause"]) == (0, "race")
    assert "proven: not so if default/big came in the other order" in found["explanation"]
