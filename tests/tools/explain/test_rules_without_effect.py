"""Rules that keep the pod from no node, since no node has their label or nobody is in their namespace."""

from __future__ import annotations

import pytest

from tests.support import build
from tests.support.json_cluster import Cluster, zoned

TYPO = "topology.kubernetes.io/zon"
ANYBODY = build.term(TYPO, {})
IN_CACHE = build.term(build.ZONE, {}, namespaces=["cachens", "default"])
MISSING = f"no node has the label {TYPO}; did you mean {build.ZONE}?"
ABSENT = "the pod's affinity names the namespace cachens, which does not exist"


@pytest.mark.parametrize(
    ("spec", "notes"),
    [
        (
            {"affinity": build.affinity(anti_required=[ANYBODY])},
            [f"the pod's anti-affinity has no effect: {MISSING}"],
        ),
        (
            {
                "affinity": build.affinity(
                    preferred=[(1, ANYBODY)], anti_preferred=[(1, ANYBODY), (2, ANYBODY)]
                )
            },
            [
                f"the pod's preferred affinity has no effect: {MISSING}",
                f"the pod's preferred anti-affinity has no effect: {MISSING}",
            ],
        ),
        (
            {"spread": [build.spread(TYPO, {}, soft=True)]},
            [f"the pod's soft spread has no effect: {MISSING}"],
        ),
        # They refuse nodes, and say why there.
        ({"spread": [build.spread(TYPO, {})]}, []),
        ({"affinity": build.affinity(required=[ANYBODY])}, []),
        ({"affinity": build.affinity(anti_required=[IN_CACHE])}, [f"{ABSENT}; did you mean caches?"]),
        ({"affinity": build.affinity(anti_required=[build.term(build.ZONE, {})])}, []),
    ],
)
@pytest.mark.parametrize("node", [None, "a"], ids=["pending", "bound"])
def test_a_rule_without_effect_is_told(spec: build.Json, notes: list[str], node: str | None) -> None:
    cluster = Cluster(zoned("a b"), namespaces=[build.namespace("caches")])
    answer = cluster.explain(build.pod(node=node, **spec))
    assert [note for note in answer.notes if note.startswith("the pod's ")] == notes


def test_of_namespaces_that_may_not_be_listed_nothing_is_said() -> None:
    pod = build.pod(affinity=build.affinity(anti_required=[IN_CACHE]))
    assert Cluster(zoned("a b")).explain(pod).notes == ()
