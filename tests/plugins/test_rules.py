"""The plugins decide as recorded and as the tables of edge cases say; afterwards the counts are audited."""

from pathlib import Path

import pytest

from tests.conformance.compare import decision_mismatches
from tests.conformance.product import ProductSubject
from tests.conformance.replay import answers
from tests.conformance.traces import Apply, Delete, Evaluate, Trace, read
from tests.reference.cluster import Cluster
from tests.support.build import ZONE, node, pod, service
from tests.support.cases.row import Row, differences
from tests.support.cases.rows import ALL

DATA = Path(__file__).parent.parent / "data"
KINDS = ("affinity", "spread", "node", "mixed", "volumes", "preempt")


@pytest.mark.parametrize("row", ALL, ids=lambda row: f"{row.plugin} {row.id}")
def test_the_product_says_what_the_row_says(row: Row):
    subject = ProductSubject(row.config)
    for obj in row.objects:
        subject.apply(obj)
    assert differences(row, subject.evaluate(row.pod)) == []
    assert subject.differences() == []


def _every_fifth(kind: str) -> list[Trace]:
    records = list(read(DATA / f"{kind}.jsonl.gz"))[:: 2 if kind == "volumes" else 5]
    return [record for record in records if isinstance(record, Trace)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_product_decides_as_recorded(kind: str):
    """One state, through the whole recording, audited at its end."""
    found: list[str] = []
    for trace in _every_fifth(kind):
        subject, expected = ProductSubject(trace.config), iter(trace.expected)
        for op in trace.ops:
            match op:
                case Apply():
                    subject.apply(op.object)
                case Delete():
                    subject.delete(op.kind, op.namespace, op.name)
                case Evaluate():
                    mismatches = decision_mismatches(next(expected), subject.evaluate(op.object))
                    found += [f"{trace.name} {mismatch}" for mismatch in mismatches]
        found += [f"{trace.name} {difference}" for difference in subject.differences()]
    assert found == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_built_anew_decides_as_recorded(kind: str):
    found = [
        f"{place} {mismatch}"
        for trace in _every_fifth(kind)
        for place, mismatches in answers(trace, ProductSubject, fresh=True)
        for mismatch in mismatches
    ]
    assert found == []


def test_nodes_without_a_zone_and_nodes_of_an_empty_zone_are_one_domain_of_default_constraints():
    subject, reference = ProductSubject(None), Cluster()
    zones = {"empty": {ZONE: ""}, "none": {}, "x": {ZONE: "x"}}
    objects = [service("svc", {"app": "web"}), *(node(name, labels=labels) for name, labels in zones.items())]
    for index, name in enumerate(("empty", "empty", "empty", "x")):
        objects.append(pod(f"p{index}", node=name, labels={"app": "web"}))
    for obj in objects:
        subject.apply(obj)
        reference.apply(obj)
    incoming = pod("incoming", labels={"app": "web"})
    scores = subject.evaluate(incoming)["score"]["PodTopologySpread"]
    assert scores == {"empty": 13, "none": 100, "x": 53}
    assert scores == reference.evaluate(incoming)["score"]["PodTopologySpread"]
