"""A field or an annotation without effect is named in the pod's explanation."""

from __future__ import annotations

import pytest

from scheduler.engine.state.cluster import ClusterState
from scheduler.tools.explain.explainer import explain
from tests.support import build
from tests.support.json_cluster import Cluster


@pytest.mark.parametrize(("operator", "is_named"), [("Gt", True), ("Exists", False)])
@pytest.mark.parametrize("node", [None, "n"], ids=["pending", "bound"])
def test_a_field_of_a_later_version_is_named(operator: str, node: str | None, *, is_named: bool) -> None:
    toleration = {"key": "k", "operator": operator, **({"value": "1"} if operator == "Gt" else {})}
    document = build.pod("p", node=node, spec={"tolerations": [toleration]})
    text = (
        "the operators Lt and Gt of tolerations: no effect in Kubernetes 1.36, "
        "needs the feature gate TaintTolerationComparisonOperators"
    )
    assert (text in _notes(document)) is is_named


def test_an_annotation_that_nothing_reads_is_named() -> None:
    document = build.pod("p", annotations={"affinity-scheduler.io/afinity": "{}"})
    note = (
        "annotation affinity-scheduler.io/afinity has no effect: nothing reads it;"
        ' did you mean "affinity-scheduler.io/affinity"?'
    )
    assert note in _notes(document)


def _notes(document: build.Json) -> tuple[str, ...]:
    return explain(Cluster([]).request(document, ClusterState())).notes
