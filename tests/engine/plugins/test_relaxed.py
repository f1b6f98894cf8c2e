"""Decisions on relaxed pods, and beside them, equal the reference's on specs that were rewritten by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from scheduler.engine.model.pods import Pod
from tests.conformance.compare import decision_mismatches
from tests.conformance.product import LiveCluster, ProductSubject
from tests.engine.plugins.lives import BEGINNINGS, CHANGES, Applied, Deleted, pods
from tests.reference.annotated import REQUIRED, in_fields
from tests.reference.cluster import Cluster
from tests.reference.fallback import (
    FALLBACK,
    RELAXED,
    entries_of,
    marked,
    name_of,
    relaxed_anti,
    softened,
)
from tests.support import build
from tests.support.build import ZONE, Json


def _choices(pod: Json) -> list[Json]:
    """Return an entry for each rule and key of the pod."""
    spec = in_fields(pod).get("spec") or {}
    affinity = spec.get("affinity") or {}
    found = [
        {"rule": side, "topologyKey": term["topologyKey"]}
        for side in ("podAffinity", "podAntiAffinity")
        for term in (affinity.get(side) or {}).get(REQUIRED) or ()
    ]
    found += [
        {"rule": "topologySpreadConstraints", "topologyKey": one["topologyKey"]}
        for one in spec.get("topologySpreadConstraints") or ()
        if one["whenUnsatisfiable"] == "DoNotSchedule"
    ]
    # That of the spec cannot be relaxed, since kubelets check it.
    of_spec = ((pod.get("spec") or {}).get("affinity") or {}).get("nodeAffinity") or {}
    if (affinity.get("nodeAffinity") or {}).get(REQUIRED) and REQUIRED not in of_spec:
        found.append({"rule": "nodeAffinity"})
    return [one for number, one in enumerate(found) if one not in found[:number]]


@st.composite
def with_fallbacks(draw: st.DrawFn, pod: Json, *, is_relaxed: bool) -> Json:
    """Draw entries for some of the pod's rules, and a mark for some of these."""
    choices = _choices(pod)
    entries = [one for one in choices if draw(st.sampled_from((True, True, False)))]
    if not entries:
        return pod
    for entry in entries:
        entry["afterSeconds"] = draw(st.integers(0, 9))
        if "opology" not in entry["rule"]:
            entry |= draw(st.sampled_from(({}, {"weight": 7})))
    annotations = {**(pod["metadata"].get("annotations") or {}), FALLBACK: json.dumps(entries)}
    relaxed = [name_of(entry) for entry in entries if is_relaxed and draw(st.booleans())]
    if relaxed:
        annotations[RELAXED] = json.dumps([{"rule": name, "why": "it waited"} for name in relaxed])
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}}


PLACED = pods(placed=True).flatmap(lambda pod: with_fallbacks(pod, is_relaxed=True))
INCOMING = pods(placed=False).filter(_choices).flatmap(lambda pod: with_fallbacks(pod, is_relaxed=False))


class _Relaxing(LiveCluster):
    """Reads incoming pods as relaxed as their mark says; the machine makes such pods of due ones."""

    def pod(self, obj: Json) -> Pod:
        bound = {**obj, "spec": {**obj["spec"], "nodeName": "n0"}}
        return replace(super().pod(bound), node_name="", relaxed=())


def _mismatches(objects: list[Applied | Deleted], incoming: Json, names: list[str]) -> list[str]:
    product, reference = ProductSubject(None), Cluster()
    product.cluster.__class__ = _Relaxing
    mark: Any = json.dumps([{"rule": name} for name in names])
    annotations = {**(incoming["metadata"].get("annotations") or {}), RELAXED: mark}
    relaxed = {**incoming, "metadata": {**incoming["metadata"], "annotations": annotations}}
    entries = [entry for entry in entries_of(incoming) if name_of(entry) in names]
    terms = relaxed_anti(incoming, entries)
    for change in objects:
        if isinstance(change, Deleted):
            product.delete(*change)
            reference.delete(*change)
            continue
        obj = change.object
        product.apply(obj)
        reference.apply(softened(obj, marked(obj), terms) if obj["kind"] == "Pod" else obj)
    assert product.differences() == []
    decided = reference.evaluate(softened(incoming, entries))
    event("relaxed" if entries else "hard")
    return [str(one) for one in decision_mismatches(decided, product.evaluate(relaxed))]


@settings(max_examples=40, deadline=None)
@given(
    beginning=BEGINNINGS,
    changes=st.lists(st.one_of(st.builds(Applied, PLACED), CHANGES), min_size=1, max_size=8),
    incoming=INCOMING,
    chosen=st.data(),
)
def test_a_relaxed_pod_is_decided_as_if_its_rules_were_written_as_preferences(
    beginning: list[Applied], changes: list[Applied | Deleted], incoming: Json, chosen: st.DataObject
) -> None:
    """Nodes, running pods of all shapes, some relaxed themselves; every subset of the incoming pod's entries."""
    names = [name_of(entry) for entry in entries_of(incoming)]
    relaxed = [name for name in names if chosen.draw(st.sampled_from((True, True, False)))]
    assert _mismatches([*beginning, *changes], incoming, relaxed) == []


REPLICAS = st.builds(
    lambda *choices: _replica(*choices),  # noqa: PLW0108 - defined below
    st.integers(0, 8),
    st.sampled_from(("n0", "n1", "n2", "n3")),
    st.sampled_from((True, True, True, False)),
    st.sampled_from((False, False, True)),
    st.sampled_from((1, 1, 2)),
    st.sampled_from((True, True, False)),
)


def _replica(
    number: int, node: str | None, has_entry: bool, is_relaxed: bool, limit: int, in_spec: bool
) -> Json:
    """Return a replica with anti-affinity against its like by zone, in its spec or by annotation."""
    term = build.term(ZONE, build.selector("app=web"))
    annotations = {}
    if not in_spec or limit > 1:
        own = {"podAntiAffinity": {REQUIRED: [{**term, "maxPodsPerDomain": limit}]}}
        annotations["affinity-scheduler.io/affinity"] = json.dumps(own)
    if has_entry:
        entry = {"rule": "podAntiAffinity", "topologyKey": ZONE, "afterSeconds": 1}
        annotations[FALLBACK] = json.dumps([entry])
        if is_relaxed:
            annotations[RELAXED] = json.dumps([{"rule": name_of(entry)}])
    return build.pod(
        f"p{number}",
        labels={"app": "web"},
        node=node,
        annotations=annotations,
        affinity=build.affinity(anti_required=[term]) if in_spec and limit == 1 else None,
    )


def _limited(number: int) -> Json:
    return _replica(number, "n0", has_entry=True, is_relaxed=False, limit=2, in_spec=False)


@settings(max_examples=50, deadline=None)
@example(replicas=[_limited(0), _limited(1)], incoming=_limited(2), is_relaxed=True)
@given(
    replicas=st.lists(REPLICAS, max_size=7),
    incoming=REPLICAS,
    is_relaxed=st.sampled_from((True, True, False)),
)
def test_equal_rules_of_replicas_yield_only_to_a_relaxed_one(
    replicas: list[Json], incoming: Json, is_relaxed: bool
) -> None:
    """Hard ones, relaxed ones, ones without a fallback, with limits, by annotation or by spec, in three zones."""
    nodes = [Applied(build.node(f"n{n}", labels={ZONE: f"z{n % 3}"})) for n in range(4)]
    incoming = {**incoming, "spec": {**incoming["spec"]}, "metadata": {**incoming["metadata"], "name": "x"}}
    incoming["spec"].pop("nodeName", None)
    incoming["metadata"]["uid"] = "x"
    names = [name_of(entry) for entry in entries_of(incoming)] if is_relaxed else []
    assert _mismatches([*nodes, *map(Applied, replicas)], incoming, names) == []
