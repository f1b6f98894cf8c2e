"""
Edge cases of InterPodAffinity and PodTopologySpread that the recordings have not, by the numbers of the rules' rows.

The recordings have the other rows, and the reference is compared with the plugins on random clusters.
"""

from collections.abc import Sequence
from typing import Final, Unpack

from tests.support.build import (
    HOSTNAME,
    ZONE,
    Json,
    affinity,
    configuration,
    node,
    owned_by,
    pod,
    replica_set,
    replication_controller,
    selector,
    service,
    spread,
    stateful_set,
    term,
)
from tests.support.cases.row import UR, Expected, Row, U

NAME: Final = "PodTopologySpread"

SKEW: Final = (U, "node(s) didn't match pod topology spread constraints")
FOO: Final = selector("foo")


def row(
    id_: str, nodes: Sequence[Json], others: Sequence[Json], incoming: Json, **expected: Unpack[Expected]
) -> Row:
    return Row(id_, NAME, [*nodes, *others], incoming, **expected)


def spread_pod(*constraints: Json, **labels: str) -> Json:
    """Return a pod with these constraints, and label foo unless others are given."""
    return pod(labels=labels or {"foo": "x"}, spread=constraints)


def _at(name: str, zone: str, **labels: str) -> Json:
    return node(name, labels={"zone": zone, "node": name, **labels})


def foo(**counts: int) -> list[Json]:
    """Return pods with label foo: the given number on each named node."""
    return [
        pod(f"{on}-{i}", node=on, labels={"foo": "x"}) for on, count in counts.items() for i in range(count)
    ]


A: Final = _at("a", "zone1")
B: Final = _at("b", "zone1")
X: Final = _at("x", "zone2")

FILTER_ROWS: Final = [
    row(
        "49 selector nil with matchLabelKeys",
        [A, B],
        foo(a=1),
        spread_pod(spread("node", None, match_label_keys=["foo"])),
        refused={},
    ),
    row(
        "81 a zone only on nodes that the nodeSelector excludes, minDomains 3",
        [_at("a", "zone1", pick="me"), _at("x", "zone2", pick="me"), _at("c", "zone3")],
        foo(a=1, x=1),
        pod(labels={"foo": "x"}, node_selector={"pick": "me"}, spread=[spread("zone", FOO, min_domains=3)]),
        refused={"a": SKEW, "x": SKEW},
    ),
    row(
        "2.2 a selector that does not parse",
        [A, B],
        [],
        spread_pod(spread("node", selector("foo in {{bad}}"))),
        error='running PreFilter plugin "PodTopologySpread": get constraints from pod: ',
    ),
    row(
        "2.2 matchLabelKeys not merged at creation narrow the selector all the same",
        [A, B],
        [
            pod("e", node="a", labels={"foo": "x", "v": "1"}),
            pod("f", node="b", labels={"foo": "x", "v": "2"}),
        ],
        spread_pod(spread("node", FOO, match_label_keys=["v"]), foo="x", v="2"),
        refused={"b": SKEW},
    ),
]


def defaults(*constraints: Json) -> Json:
    """Return a configuration with these default constraints."""
    return configuration({NAME: {"defaultingType": "List", "defaultConstraints": list(constraints)}})


HARD_NODE: Final = spread("node", None)
FOO_SERVICE: Final = service("s", {"foo": "x"})

DEFAULT_ROWS: Final = [
    *(
        row(
            f"2.1 the default selector comes from the pod's {version} {kind}",
            [A, B],
            [owner, *foo(a=1), pod("e", node="b", labels={"bar": "x"})],
            pod(labels={"foo": "x"}, owner=owned_by(kind, "o", api_version=version)),
            config=defaults(HARD_NODE),
            refused={"a": SKEW},
        )
        for kind, version, owner in (
            ("StatefulSet", "apps/v1", stateful_set("o", FOO)),
            ("ReplicationController", "v1", replication_controller("o", {"foo": "x"})),
        )
    ),
    row(
        "2.1 service and replica set selectors both have to match",
        [A, B, X],
        [
            FOO_SERVICE,
            replica_set("rs", selector("hash=1")),
            pod("e", node="a", labels={"foo": "x", "hash": "1"}),
            pod("f", node="b", labels={"foo": "x", "hash": "2"}),
            pod("g", node="x", labels={"hash": "1"}),
        ],
        pod(labels={"foo": "x", "hash": "1"}, owner=owned_by("ReplicaSet", "rs")),
        config=defaults(HARD_NODE),
        refused={"a": SKEW},
    ),
]

SCORE_ROWS: Final = [
    row(
        "85 List defaults, a node without one soft key",
        [node("a", labels={ZONE: "z"}), node("b")],
        [FOO_SERVICE, *foo(a=1)],
        pod(labels={"foo": "x"}),
        config=defaults(
            spread(HOSTNAME, None, soft=True, max_skew=3), spread(ZONE, None, soft=True, max_skew=5)
        ),
        scores={"a": 100, "b": 0},
    ),
    row(
        # w = ln 4: a 1.39 + 1.39 -> 3, x 4.16 + 0 -> 4. Rounded one by one, a would be 2 and x would get 50.
        "2.8 the total of all constraints is rounded, not each",
        [A, X],
        [*foo(a=1, x=3), pod("bar", node="a", labels={"bar": "x"})],
        pod(
            labels={"foo": "x", "bar": "x"},
            spread=[spread("zone", FOO, soft=True), spread("zone", selector("bar"), soft=True)],
        ),
        scores={"a": 100, "x": 75},
    ),
    row(
        # Zones {"", z} = 2 and hostname 2: ln 4. Raw a 2 + ln 4 + 4 = 7.39 -> 7, x 6.
        "2.8 System defaults, pods on an infeasible node without zone count in the empty zone",
        [node("a", labels={ZONE: ""}), node("x", labels={ZONE: "z"}), node("c", unschedulable=True)],
        [FOO_SERVICE, *foo(c=1)],
        pod(labels={"foo": "x"}),
        scores={"a": 85, "x": 100},
    ),
]

BAD: Final = term("zone", selector("app in {{bad}}"))
AFFINITY_ROWS: Final = [
    Row(
        f"18 a bad value in {name}",
        "InterPodAffinity",
        [node("a")],
        pod(affinity=bad),
        prefilter=(UR, f"parsing pod: {name}: "),
    )
    for name, bad in (
        ("requiredAffinityTerms", affinity(required=[BAD])),
        ("requiredAntiAffinityTerms", affinity(anti_required=[BAD])),
        ("preferredAffinityTerms", affinity(preferred=[(1, BAD)])),
        ("preferredAntiAffinityTerms", affinity(anti_preferred=[(1, BAD)])),
    )
]

ROWS: Final = [*FILTER_ROWS, *DEFAULT_ROWS, *SCORE_ROWS, *AFFINITY_ROWS]
