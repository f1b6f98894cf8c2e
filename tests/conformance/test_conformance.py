"""The runner's results and exit codes for agreement, disagreement and bad input."""

import copy
import gzip
import json
from pathlib import Path

import pytest

from tests.conformance.__main__ import main
from tests.conformance.compare import admission_mismatches, decision_mismatches
from tests.conformance.traces import BadInputError, read
from tests.reference.cluster import Cluster
from tests.support import build

DATA = Path(__file__).parent.parent / "data"


def _trace() -> build.Json:
    """Return a trace of two nodes whose only pod moves from one to the other, with decisions in between."""
    one, two = build.node("a"), build.node("b")
    incoming = build.pod(
        labels={"app": "web"},
        affinity=build.affinity(anti_required=[build.term(build.HOSTNAME, build.selector("app=web"))]),
    )
    cluster = Cluster()
    ops: list[build.Json] = []
    expected = []
    for obj in (one, two, build.pod("e", node="a", labels={"app": "web"})):
        ops.append({"op": "apply", "object": obj})
        cluster.apply(obj)
    for _ in range(2):
        ops.append({"op": "evaluate", "object": incoming})
        expected.append(cluster.evaluate(incoming))
        ops.append({"op": "delete", "kind": "Node", "name": "b"})
        cluster.delete("Node", None, "b")
    expected[1]["message"] += " preemption: 0/1 nodes are available: 1 whatever."
    return {"name": "two-nodes", "config": None, "ops": ops, "expected": expected}


def _written(folder: Path, *records: object, packed: bool = False) -> str:
    text = "".join(json.dumps(record) + "\n" for record in records).encode()
    path = folder / "records.jsonl"
    path.write_bytes(gzip.compress(text) if packed else text)
    return str(path)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzipped"])
@pytest.mark.parametrize("fresh", [[], ["--fresh"]], ids=["carried through", "fresh"])
def test_agreement_is_counted_and_exits_0(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], packed: bool, fresh: list[str]
):
    path = _written(tmp_path, _trace(), packed=packed)
    assert main([path, "--subject", "reference", *fresh]) == 0
    assert capsys.readouterr().out == "2 evaluations, 0 mismatches\n"


def test_each_mismatch_is_a_line_and_exits_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    trace = _trace()
    trace["expected"][0]["score"]["ImageLocality"]["b"] = 7
    trace["expected"][1]["feasible"] = ["b"]
    assert main([_written(tmp_path, trace), "--subject", "reference"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "two-nodes evaluate 0 score ImageLocality b: expected 7, got 0",
        "two-nodes evaluate 1 feasible - -: expected ['b'], got []",
        "2 evaluations, 2 mismatches",
    ]


def _without(path: str) -> build.Json:
    entry: build.Json = copy.deepcopy(_trace()["expected"][0])
    *folders, last = path.split("/")
    place = entry
    for folder in folders:
        place = place[folder]
    del place[last]
    return entry


@pytest.mark.parametrize(
    "path",
    [
        "filter/InterPodAffinity",
        "filter/InterPodAffinity/a",
        "feasible",
        "score/TaintToleration",
        "score/TaintToleration/b",
        "total/b",
    ],
)
def test_every_part_of_a_decision_is_compared_both_ways(path: str):
    whole, part = _trace()["expected"][0], _without(path)
    assert decision_mismatches(whole, whole) == []
    assert len(decision_mismatches(whole, part)) == 1
    assert len(decision_mismatches(part, whole)) == 1


@pytest.mark.parametrize(
    ("change", "n_mismatches"),
    [
        pytest.param({"message": "0/1 nodes are available: 1 x."}, 0, id="the preemption part is not"),
        pytest.param({"message": "0/1 nodes are available: 1 y."}, 1, id="the message up to preemption"),
        pytest.param({"message": None}, 1, id="a missing message"),
        pytest.param(
            {"prefilter": {"P": {"code": "Unschedulable", "reasons": ["r"]}}}, 1, id="a refusal of PreFilter"
        ),
        pytest.param({"prefilterNodes": ["a"]}, 1, id="narrowed nodes"),
        pytest.param({"error": "e"}, 1, id="an error"),
    ],
)
def test_what_is_compared_besides(change: build.Json, n_mismatches: int):
    entry = {"message": "0/1 nodes are available: 1 x. preemption: 0/1 nodes are available: 1 z."}
    assert len(decision_mismatches(entry, {**entry, **change})) == n_mismatches


def test_the_order_of_reasons_is_left_open_but_not_their_number():
    def entry(*reasons: str) -> build.Json:
        return {"filter": {"NodeResourcesFit": {"a": {"code": "Unschedulable", "reasons": list(reasons)}}}}

    assert decision_mismatches(entry("x", "y"), entry("y", "x")) == []
    assert len(decision_mismatches(entry("x", "y"), entry("x", "y", "y"))) == 1


def test_admissions_are_compared_field_by_field():
    stored: build.Json = {"stored": {"affinity": None, "topologySpreadConstraints": []}}
    refused: build.Json = {"refused": {"code": 422, "reason": "Invalid", "message": "m", "causes": []}}
    other = {"refused": {**refused["refused"], "message": "n"}}
    assert admission_mismatches(stored, stored) == []
    assert [mismatch.field for mismatch in admission_mismatches(stored, refused)] == ["answer"]
    assert [mismatch.field for mismatch in admission_mismatches(refused, other)] == ["refused.message"]


def test_admissions_answer_as_recorded(capsys: pytest.CaptureFixture[str]):
    """The two whose recording timed out are not counted."""
    assert main([str(DATA / "admission.jsonl.gz"), "--subject", "reference"]) == 0
    said = capsys.readouterr()
    assert said.out == "298 evaluations, 0 mismatches\n"
    assert said.err == "2 admissions timed out while being recorded and were not compared\n"


A_POD = b'{"kind":"Pod","metadata":{"name":"p","namespace":"d"},"spec":{"containers":5}}'


def _asks(obj: bytes, answer: bytes) -> bytes:
    return b'{"name":"x","ops":[{"op":"evaluate","object":%s}],"expected":[%s]}' % (obj, answer)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(b"\x1f\x8bbroken", "expected JSON lines, plain or gzipped", id="broken gzip"),
        pytest.param(
            gzip.compress(b'{"name":"x","pod":{},"refused":{"code":504}}\n' * 99)[:-9],
            "expected JSON lines, plain or gzipped",
            id="cut gzip",
        ),
        pytest.param(b"\x80\x81", "line 1: found ", id="no text"),
        pytest.param(b"name: yaml\n", "line 1: found ", id="no JSON"),
        pytest.param(b"[]\n", "line 1: found ", id="no object"),
        pytest.param(
            b'{"name":"x","ops":[{"op":"fly"}],"expected":[]}', "line 1: found ", id="an unknown op"
        ),
        pytest.param(
            b'{"name":"x","ops":[],"expected":[{}]}', "found 1 entries for 0 evaluates", id="too many answers"
        ),
        pytest.param(_asks(b"{}", b"{}"), "line 1: ops: found ", id="no object in an op"),
        pytest.param(_asks(A_POD, b'{"feasible":7}'), "line 1: expected: found ", id="no decision"),
        pytest.param(
            b'{"name":"x","pod":{"spec":{"affinity":5}},"stored":{}}', "x: found Pod in version", id="no pod"
        ),
        pytest.param(b'{"name":"x","pod":{}}', "found neither or both of stored and refused", id="no answer"),
    ],
)
def test_bad_input_is_one_line_and_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, says: str
):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    assert main([str(path), "--subject", "reference"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith(f"{path}: ")
    assert says in said.err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        pytest.param(
            _asks(A_POD, b"{}"), "found pod: Expected `array | null`", id="a pod of the wrong shape"
        ),
        pytest.param(
            b'{"name":"x","ops":[],"expected":[],"config":{"profiles":5}}',
            "found config: ",
            id="no configuration",
        ),
    ],
)
def test_what_the_product_cannot_read_is_one_line_and_exits_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, says: str
):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    assert main([str(path)]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert said.startswith(f"{path}: x: {says}")


def test_a_file_that_is_not_there_is_bad_input(tmp_path: Path):
    with pytest.raises(BadInputError, match="found No such file or directory"):
        list(read(tmp_path / "absent.jsonl.gz"))


def test_an_unknown_subject_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main([_written(tmp_path, _trace()), "--subject", "nobody"]) == 2
    assert capsys.readouterr().err.startswith("--subject: found nobody, expected one of ")
