"""A field or an annotation without effect is named in the pod's explanation."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from scheduler.daemon.assembly.profiles import build_profiles
from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS, Semantics
from scheduler.engine.state.cluster import ClusterState
from scheduler.tools.explain.explainer import ExplainRequest, explain
from tests.support import build


@pytest.mark.parametrize(("operator", "is_named"), [("Gt", True), ("Exists", False)])
@pytest.mark.parametrize("node", [None, "n"], ids=["pending", "bound"])
def test_a_field_of_a_later_version_is_named(operator: str, node: str | None, *, is_named: bool) -> None:
    toleration = {"key": "k", "operator": operator, **({"value": "1"} if operator == "Gt" else {})}
    document = build.pod("p", node=node, spec={"tolerations": [toleration]})
    text = (
        "the operators Lt and Gt of tolerations: no effect in Kubernetes 1.36, "
        "needs the feature gate TaintTolerationComparisonOperators"
    )
    assert (text in _notes(document, DEFAULT_SEMANTICS)) is is_named


def test_an_annotation_that_nothing_reads_is_named() -> None:
    document = build.pod("p", annotations={"affinity-scheduler.io/afinity": "{}"})
    note = (
        "annotation affinity-scheduler.io/afinity has no effect: nothing reads it;"
        ' did you mean "affinity-scheduler.io/affinity"?'
    )
    assert note in _notes(document, DEFAULT_SEMANTICS)


def _notes(document: build.Json, semantics: Semantics) -> tuple[str, ...]:
    """Return the notes of the pod's explanation."""
    settings = default_settings(semantics)
    pod = PodDecoder(semantics).decode(msgspec.json.encode(document))
    (profile,) = (each.scheduler_name for each in settings.profiles)
    request = ExplainRequest(
        pod=pod,
        state=ClusterState(),
        new_profile=lambda view: build_profiles(settings, view)[profile],
        rng=Random(0),
        semantics=semantics,
    )
    return explain(request).notes
