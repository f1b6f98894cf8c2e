"""Rules by annotation in the spec, for programs that read no annotations."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from scheduler.engine.model.annotations import MIRROR
from scheduler.engine.model.fallback import FALLBACK, relaxed_spec
from scheduler.engine.model.terms import AffinityTerm, TermList, usable
from tests.support import build
from tests.support.build import Json
from tests.support.json_cluster import decoded
from tests.tools.webhook.client import OWN, mutated
from tests.tools.webhook.test_mutating import ENFORCED, HARD, SOFT, pod_with
from tests.tools.webhook.test_properties import pods

WEB = build.term(build.ZONE, build.selector("app=web"))
DB = build.term(build.HOSTNAME, build.selector("app=db"))


def mirrored(own: Json, affinity: Json | None = None, **annotations: str) -> tuple[Json, list[str]]:
    """Return the spec's affinity after the webhook, and its warnings."""
    pod = pod_with({OWN: own}, **({"affinity": affinity} if affinity else {}))
    pod["metadata"]["annotations"] |= {MIRROR: "true", **annotations}
    answer = mutated(pod)
    assert answer.stored["metadata"]["annotations"][OWN] == pod["metadata"]["annotations"][OWN]
    return answer.stored["spec"].get("affinity", {}), answer.warnings


def test_required_terms_are_added_to_those_of_the_spec_once() -> None:
    """Enforced terms are required when the pod is scheduled; at most one pod per domain is plain anti-affinity."""
    own = {
        "podAntiAffinity": {HARD: [{**WEB, "maxPodsPerDomain": 1}, DB]},
        "podAffinity": {ENFORCED: [WEB]},
    }
    found, warnings = mirrored(own, build.affinity(anti_required=[DB]))
    assert found == {"podAntiAffinity": {HARD: [DB, WEB]}, "podAffinity": {HARD: [WEB]}}
    assert warnings == [f"{MIRROR}: 2 added to spec.affinity"]


@pytest.mark.parametrize(
    ("own", "named"),
    [
        ({"podAntiAffinity": {HARD: [{**WEB, "maxPodsPerDomain": 2}]}}, "maxPodsPerDomain above 1"),
        ({"podAntiAffinity": {HARD: [{**WEB, "maxPodsPerDomain": "20%"}]}}, "maxPodsPerDomain in per cent"),
        ({"podAntiAffinity": {HARD: [{**WEB, "domainWeights": {"a": 1}}]}}, "domainWeights"),
        ({"podAntiAffinity": {HARD: [{**WEB, "matchLabelKeys": ["absent"]}]}}, "matchLabelKeys"),
        ({"podAffinity": {SOFT: [{"weight": 1, "podAffinityTerm": WEB}]}}, SOFT),
    ],
)
def test_what_has_no_field_is_told(own: Json, named: str) -> None:
    assert mirrored(own) == ({}, [f"{MIRROR}: not mirrored: {named}"])


def test_node_terms_of_both_have_to_hold() -> None:
    zone, disks = build.node_term(f"{build.ZONE} in a"), [build.node_term("ssd"), build.node_term("nvme")]
    own = build.affinity(node_required=disks)
    found, _ = mirrored(own, build.affinity(node_required=[zone]))
    joined = [build.node_term(f"{build.ZONE} in a", name) for name in ("ssd", "nvme")]
    assert found["nodeAffinity"][HARD]["nodeSelectorTerms"] == joined
    assert mirrored(own, found) == (found, [])
    assert mirrored(own)[0] == build.affinity(node_required=disks)


def test_an_annotation_that_replaces_the_spec_is_not_mirrored() -> None:
    mode = {"affinity-scheduler.io/affinity-mode": "replace"}
    found, warnings = mirrored({"podAffinity": {HARD: [WEB]}}, None, **mode)
    assert (found, warnings) == ({}, [f"{MIRROR}: not mirrored: the annotation replaces the spec"])


def test_terms_with_a_fallback_are_mirrored_and_can_be_relaxed() -> None:
    """An autoscaler tries first. Both copies of the term become a preference."""
    own = {"podAntiAffinity": {HARD: [WEB, DB]}}
    entry = {"rule": "podAntiAffinity", "topologyKey": build.ZONE, "afterSeconds": 60}
    pod = pod_with({OWN: own})
    pod["metadata"]["annotations"] |= {MIRROR: "true", FALLBACK: json.dumps([entry])}
    answer = mutated(pod)
    assert answer.stored["spec"]["affinity"] == {"podAntiAffinity": {HARD: [WEB, DB]}}
    spec = decoded(answer.stored).spec
    assert spec.annotation_problem is None
    left = usable(relaxed_spec(spec, spec.fallbacks).affinity.required_anti)
    assert {term.topology_key for term in left} == {build.HOSTNAME}


def test_node_affinity_with_a_fallback_is_not_mirrored() -> None:
    """The kubelet would check it again, so that it could not be relaxed any more."""
    own = build.affinity(node_required=[build.node_term("ssd")], anti_required=[WEB])
    fallback = json.dumps([{"rule": "nodeAffinity", "afterSeconds": 5}])
    found, warnings = mirrored(own, None, **{FALLBACK: fallback})
    assert found == {"podAntiAffinity": {HARD: [WEB]}}
    assert warnings == [
        f"{MIRROR}: 1 added to spec.affinity",
        f"{MIRROR}: not mirrored: nodeAffinity with a fallback",
    ]


def test_another_value_is_refused() -> None:
    pod = pod_with({OWN: {}})
    pod["metadata"]["annotations"][MIRROR] = "yes"
    ((_, field, message),) = mutated(pod).causes
    assert field == f"metadata.annotations[{MIRROR}]"
    assert 'expected "true" or "false"' in message


@settings(max_examples=80)
@given(pod=pods())
def test_the_spec_alone_requires_what_it_requires_with_the_annotation(pod: Json) -> None:
    """Where everything has a field."""
    pod = copy.deepcopy(pod)
    pod["metadata"]["annotations"][MIRROR] = "true"
    answer = mutated(pod)
    if answer.pod is None or any("not mirrored" in warning for warning in answer.warnings):
        return
    bare = copy.deepcopy(answer.pod)
    bare["metadata"]["annotations"].pop(OWN, None)
    assert required(bare) == required(answer.pod)


def required(pod: Json) -> Any:
    """Return the required terms, but for what an annotation alone can say of them."""
    found = decoded(json.loads(json.dumps(pod))).spec.affinity
    return [_plain(found.required), _plain(found.required_anti)]


def _plain(terms: TermList) -> set[AffinityTerm]:
    return {
        replace(term, enforced=False, crosses_by_annotation=False, by_annotation=False)
        for term in usable(terms)
    }
