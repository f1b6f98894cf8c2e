"""Bad arguments, files and manifests are one line and exit code 2; and output that only terminals get."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.engine.core.decision_annotation import DecisionRecord, RankedNode
from scheduler.tools.explain.formats.explanation import Explanation, NodeGroup
from scheduler.tools.explain.formats.terminal import LiveLines, Style
from scheduler.tools.explain.report import report_lines
from tests.cli.conftest import Called

SNAPSHOTS = {
    "empty": (
        "",
        "found an empty file, expected a ClusterRecording, made by the command record, or a snapshot of a cluster, "
        "made by snapshot or bundle",
    ),
    "a list": ("[]", "expected JSON of a ClusterSnapshot"),
    "no version": ("{}", "apiVersion: found nothing, expected affinity-scheduler.io/v1"),
    "another version": (
        '{"apiVersion": "affinity-scheduler.io/v2", "kind": "ClusterSnapshot"}',
        "apiVersion: found 'affinity-scheduler.io/v2', expected affinity-scheduler.io/v1",
    ),
    "another kind": (
        '{"apiVersion": "affinity-scheduler.io/v1", "kind": "Explanation"}',
        "kind: found 'Explanation', expected ClusterSnapshot",
    ),
    "no lists": (
        '{"apiVersion": "affinity-scheduler.io/v1", "kind": "ClusterSnapshot", "pods": {}}',
        "expected lists of objects",
    ),
    "forbidden kinds that are a list": (
        '{"apiVersion": "affinity-scheduler.io/v1", "kind": "ClusterSnapshot", "forbidden": ["Service"]}',
        "forbidden: found Expected `object`, got `array`, expected an object of reasons by kind",
    ),
    "a forbidden kind without a reason": (
        '{"apiVersion": "affinity-scheduler.io/v1", "kind": "ClusterSnapshot", "forbidden": {"Service": 1}}',
        "forbidden: found Expected `str`, got `int`",
    ),
}


@pytest.mark.parametrize(("content", "message"), SNAPSHOTS.values(), ids=SNAPSHOTS)
async def test_an_invalid_snapshot_is_one_line(
    content: str, message: str, tmp_path: Path, called: Called
) -> None:
    file = tmp_path / "snapshot.json"
    file.write_text(content)
    code, _, err = await called("explain", "p", "--on", str(file))
    assert (code, len(err.splitlines())) == (2, 1)
    assert err.startswith(f"{file}: ")
    assert message in err


MANIFESTS = {
    "empty": ("", "found nothing, expected at least one manifest"),
    "a list": ("- a\n", "expected a manifest"),
    "no YAML": ("kind: [Pod", "expected one YAML or JSON document"),
    "a secret": ("kind: Secret\napiVersion: v1\n", "kind: found Secret, expected one of Pod, Deployment"),
    "a kind that no terminal shows": (
        'kind: "\\x85x"\napiVersion: v1\n',
        "kind: found \\x85x, expected one of Pod",
    ),
    "a kind that is no text": ("kind: [Pod]\napiVersion: v1\n", "kind: found a list"),
    "the same object twice": (
        "kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: {}\n"
        "---\nkind: Pod\napiVersion: v1\nmetadata: {name: p, namespace: default}\nspec: {}\n",
        "Pod default/p: found 2 documents, expected one",
    ),
    "a quantity that is none": (
        "kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: {containers: [{resources: {requests: {cpu: x}}}]}\n",
        "Pod default/p: found a malformed pod: ",
    ),
    "requests that are no object": (
        "kind: Pod\napiVersion: v1\nmetadata: {name: p}\n"
        "spec: {containers: [{resources: {requests: x, limits: {cpu: 1}}}]}\n",
        "Pod default/p: found a malformed pod: ",
    ),
    "a volume whose name is a list": (
        "kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: {volumes: [{name: []}]}\n",
        "Pod default/p: found a malformed pod: Expected `str`, got `array` - at `$.spec.volumes[0].name`",
    ),
    "a Service whose selector is no text": (
        "kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: {}\n"
        "---\nkind: Service\napiVersion: v1\nmetadata: {name: s}\nspec: {selector: {app: 3}}\n",
        "m.yaml: document 2: found a malformed Service: ",
    ),
}


@pytest.mark.parametrize(("manifest", "message"), MANIFESTS.values(), ids=MANIFESTS)
@pytest.mark.parametrize("command", ["explain", "simulate"])
async def test_an_invalid_manifest_is_one_line(
    command: str, manifest: str, message: str, tmp_path: Path, called: Called
) -> None:
    (tmp_path / "m.yaml").write_text(manifest)
    snapshot = tmp_path / "s.json"
    snapshot.write_text('{"apiVersion": "affinity-scheduler.io/v1", "kind": "ClusterSnapshot"}')
    code, _, err = await called(command, "-f", str(tmp_path / "m.yaml"), "--on", str(snapshot))
    assert (code, len(err.splitlines())) == (2, 1)
    assert message in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "p", "-f", "x"], "arguments: found -f p, expected either POD, -f FILE or -A"),
        (["explain", "-A", "p"], "arguments: found -A p, expected either POD, -f FILE or -A"),
        (
            ["explain", "a/b/c"],
            "POD: found 'a/b/c', expected POD, NAMESPACE/POD, or a workload such as deploy/NAME",
        ),
        (["explain", "deploy/"], "POD: found 'deploy/', expected POD, NAMESPACE/POD, or a workload"),
        (["explain", ""], "POD: found '', expected POD, NAMESPACE/POD, or a workload"),
        (["explain", "p", "--on", "absent.json"], "absent.json: found no such file"),
        (
            ["explain", "-f", "absent.yaml"],
            "absent.yaml: found no such file, expected a file with a manifest",
        ),
        (
            ["explain", "p", "--kubeconfig", "absent"],
            "absent: found no such file, expected a kubeconfig file",
        ),
        (
            ["simulate", "-f", "x", "--replicas", "-1"],
            "--replicas: found -1, expected a number from 0 to 100000",
        ),
        (
            ["simulate", "-f", "."],
            ".: found a folder without manifests, expected files that end with .json, .yaml",
        ),
        (["snapshot", "--kubeconfig", "absent"], "absent: found no such file, expected a kubeconfig file"),
        (["explain", "p", "--config", "absent.yaml"], "absent.yaml: found no such file"),
        (["explain", "p", "-o", "xml"], "invalid choice: 'xml'"),
    ],
)
async def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: Called
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = await called(*arguments)
    assert (code, len(err.splitlines())) == (2, 1)
    assert message in err


@pytest.mark.parametrize("n_bytes", [0, 100_000])
def test_a_broken_pipe_ends_the_command_quietly(n_bytes: int, tmp_path: Path) -> None:
    """While it prints or at its end: no traceback, and the exit code of SIGPIPE."""
    snapshot = tmp_path / "s.json"
    pods = [
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {"schedulerName": "s" * n_bytes},
        }
    ]
    parts = {"apiVersion": "affinity-scheduler.io/v1", "kind": "ClusterSnapshot", "pods": pods}
    snapshot.write_text(json.dumps(parts))
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "scheduler", "explain", "p", "--on", str(snapshot)]
    ended = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, check=False)
    os.close(write_end)
    assert (ended.returncode, ended.stderr) == (141, b"")


def test_an_answer_for_which_there_is_no_room_is_one_line(tmp_path: Path) -> None:
    config = tmp_path / "scheduler.yaml"
    config.write_text("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "scheduler", "check-config", str(config)]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    said = "standard output: found no space left on its device, expected room for the answer\n"
    assert (ended.returncode, ended.stderr) == (1, said)


async def test_an_empty_name_of_a_snapshot_is_no_live_cluster(called: Called) -> None:
    """Such as that of a variable of the shell that is not set."""
    code, _, err = await called("explain", "-A", "--on", "")
    assert (code, "expected a file made by the command record" in err) == (2, True)


def test_control_characters_in_annotations_are_escaped() -> None:
    """In sentences and in every table."""
    evil = "\x1b[31mred\x07\u202e"
    record = DecisionRecord(1, 1, 1, (RankedNode(evil, 1, {evil: 1}),), {evil: 1})
    group = NodeGroup(evil, evil, evil, 1, (evil,), removable=False)
    answer = Explanation(
        namespace=evil, pod=evil, scheduler_name=evil, profile="p", state="bound", message=evil, n_nodes=1,
        groups=(group,), scores=record.top, recorded=record, notes=(evil,),
    )  # fmt: skip
    lines = report_lines(answer, Style(io.StringIO(), {}, is_wide=True))
    assert all(line.isprintable() for line in lines)
    assert sum(line.count("\\x1b[31mred\\x07\\u202e") for line in lines) >= 10


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


STREAMS = {
    "a terminal": (_Terminal(), {"TERM": "xterm"}, True, True),
    "NO_COLOR": (_Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False, True),
    "a dumb terminal": (_Terminal(), {"TERM": "dumb"}, False, False),
    "a file": (io.StringIO(), {"TERM": "xterm"}, False, False),
}


@pytest.mark.parametrize(("out", "environ", "coloured", "progress"), STREAMS.values(), ids=STREAMS)
def test_only_terminals_get_colours_and_progress(
    out: io.StringIO, environ: dict[str, str], coloured: bool, progress: bool
) -> None:
    """NO_COLOR removes the colours, but not the progress line."""
    assert ("\x1b" in Style(out, environ).bad("x")) == coloured
    line = LiveLines(out, environ)
    line.say("reading Pod: 500")
    assert ("reading Pod: 500" in out.getvalue()) == progress
    line.say("shop/\x1b[31mp: trying change 1 of 2")
    assert ("\\x1b[31mp: trying change 1 of 2" in out.getvalue()) == progress
    line.clear()
