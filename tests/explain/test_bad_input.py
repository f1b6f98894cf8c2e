"""Wrong arguments, files and manifests: one line each, exit code 2; and what only a terminal gets."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.cli.asking.paint import Counting, Paint
from scheduler.cli.asking.report import report
from scheduler.cli.main import main
from scheduler.core.decision_annotation import DecisionRecord, RankedNode
from scheduler.explain.explanation import Explanation, NodeGroup


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("", "expected JSON of a ClusterSnapshot", id="empty"),
        pytest.param("[]", "expected JSON of a ClusterSnapshot", id="a list"),
        pytest.param("{}", "apiVersion: found nothing, expected affinity-scheduler.io/v1", id="no version"),
        pytest.param(
            '{"apiVersion": "affinity-scheduler.io/v2", "kind": "ClusterSnapshot"}',
            "apiVersion: found 'affinity-scheduler.io/v2', expected affinity-scheduler.io/v1",
            id="another version",
        ),
        pytest.param(
            '{"apiVersion": "affinity-scheduler.io/v1", "kind": "Explanation"}',
            "kind: found 'Explanation', expected ClusterSnapshot",
            id="another kind",
        ),
        pytest.param(
            '{"apiVersion": "affinity-scheduler.io/v1", "kind": "ClusterSnapshot", "pods": {}}',
            "expected lists of objects",
            id="no lists",
        ),
    ],
)
def test_a_file_that_is_no_snapshot_is_one_line(
    content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """File, field, found, expected; exit code 2."""
    file = tmp_path / "snapshot.json"
    file.write_text(content)
    assert main(["explain", "p", "--on", str(file)]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"{file}: ")
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        pytest.param("", "found nothing, expected at least one manifest", id="empty"),
        pytest.param("- a\n", "expected a manifest", id="a list"),
        pytest.param("kind: [Pod", "expected one YAML or JSON document", id="no YAML"),
        pytest.param(
            "kind: Secret\napiVersion: v1\n",
            "kind: found Secret, expected one of Pod, Deployment",
            id="a secret",
        ),
        pytest.param("kind: [Pod]\napiVersion: v1\n", "kind: found a list", id="a kind that is no text"),
        pytest.param(
            "kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: {}\n"
            "---\nkind: Pod\napiVersion: v1\nmetadata: {name: p, namespace: default}\nspec: {}\n",
            "Pod default/p: found 2 documents, expected one",
            id="the same object twice",
        ),
        pytest.param(
            "kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: {containers: [{resources: {requests: {cpu: x}}}]}\n",
            "Pod default/p: found pod: ",
            id="a quantity that is none",
        ),
    ],
)
@pytest.mark.parametrize("command", ["explain", "simulate"])
def test_a_manifest_that_is_wrong_is_one_line(
    command: str, manifest: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, and never a traceback."""
    (tmp_path / "m.yaml").write_text(manifest)
    snapshot = tmp_path / "s.json"
    snapshot.write_text('{"apiVersion": "affinity-scheduler.io/v1", "kind": "ClusterSnapshot"}')
    assert main([command, "-f", str(tmp_path / "m.yaml"), "--on", str(snapshot)]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain"], "arguments: found neither, expected a pod's name or -f FILE"),
        (["explain", "p", "-f", "x"], "arguments: found both, expected a pod's name or -f FILE"),
        (["explain", "deploy/web"], "POD: found 'deploy/web', expected a pod's name; -f FILE explains"),
        (["explain", ""], "POD: found '', expected a pod's name"),
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
        (["snapshot", "--kubeconfig", "absent"], "absent: found no such file, expected a kubeconfig file"),
        (["explain", "p", "--config", "absent.yaml"], "absent.yaml: found no such file"),
        (["explain", "p", "-o", "yaml"], "invalid choice: 'yaml'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was found, and what is expected there."""
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = int(str(ended.code))
    err = capsys.readouterr().err
    assert code == 2
    assert message in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("n_bytes", [0, 100_000])
def test_a_reader_that_has_had_enough_ends_it_quietly(n_bytes: int, tmp_path: Path) -> None:
    """Whether the pipe breaks while it prints or at its end: no traceback, and the exit code that SIGPIPE gives."""
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


def test_what_others_wrote_into_annotations_reaches_no_terminal_as_control_characters() -> None:
    """They are written out, in the sentence and in every table."""
    evil = "\x1b[31mred\x07\u202e"
    record = DecisionRecord(1, 1, 1, (RankedNode(evil, 1, {evil: 1}),), {evil: 1})
    group = NodeGroup(evil, evil, evil, 1, (evil,), removable=False)
    answer = Explanation(
        namespace=evil, pod=evil, scheduler_name=evil, profile="p", state="bound", message=evil, n_nodes=1,
        groups=(group,), scores=record.top, recorded=record, notes=(evil,),
    )  # fmt: skip
    lines = report(answer, Paint(io.StringIO(), {}), wide=True)
    assert all(line.isprintable() for line in lines)
    assert sum(line.count("\\x1b[31mred\\x07\\u202e") for line in lines) >= 10


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("out", "environ", "coloured", "counting"),
    [
        pytest.param(_Terminal(), {"TERM": "xterm"}, True, True, id="a terminal"),
        pytest.param(_Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False, True, id="NO_COLOR"),
        pytest.param(_Terminal(), {"TERM": "dumb"}, False, False, id="a dumb terminal"),
        pytest.param(io.StringIO(), {"TERM": "xterm"}, False, False, id="a file"),
    ],
)
def test_colours_and_counting_are_for_terminals_alone(
    out: io.StringIO, environ: dict[str, str], coloured: bool, counting: bool
) -> None:
    """NO_COLOR takes the colours, not the count."""
    assert ("\x1b" in Paint(out, environ).bad("x")) == coloured
    line = Counting(out, environ)
    line.at("Pod", 500)
    assert ("reading Pod: 500" in out.getvalue()) == counting
    line.done()
