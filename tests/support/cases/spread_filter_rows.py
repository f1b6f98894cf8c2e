"""
Edge cases of PodTopologySpread's filter and defaults that the recordings have not, by the numbers of the rules' rows.

The recordings have the other rows, and the reference is compared with the plugin on random clusters. In names like
"2/1/0/3": pods that match, by node.
"""

from collections.abc import Sequence
from typing import Final, Unpack

from tests.support.build import (
    Json,
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
)
from tests.support.cases.row import Expected, Row, U

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
Y: Final = _at("y", "zone2")
FOUR: Final = [A, B, X, Y]

FILTER_ROWS: Final = [
    *(
        row(
            f"41 2/2/1, maxSkew 2, minDomains {min_domains}",
            [A, B, X],
            foo(a=2, b=2, x=1),
            spread_pod(spread("node", FOO, max_skew=2, min_domains=min_domains)),
            refused=dict.fromkeys(refused, SKEW),
        )
        for min_domains, refused in ((4, "ab"), (2, ""))
    ),
    row(
        "42 zones 2/1, maxSkew 2, minDomains 3",
        FOUR,
        foo(a=1, b=1, x=1),
        spread_pod(spread("zone", FOO, max_skew=2, min_domains=3)),
        refused={"a": SKEW, "b": SKEW},
    ),
    row(
        "45 one constraint honours node affinity, one does not",
        [_at("a", "zone1", pick="me"), _at("b", "zone1", pick="me"), _at("x", "zone2", pick="me"), Y],
        foo(a=1, b=1, y=1),
        pod(
            labels={"foo": "x"},
            node_selector={"pick": "me"},
            spread=[spread("zone", FOO), spread("node", FOO, affinity_policy="Ignore")],
        ),
        refused={"a": SKEW, "b": SKEW, "y": SKEW},
    ),
    row(
        "48 selector {} with matchLabelKeys counts the pod's own value",
        [A, B, X],
        [
            pod("e", node="a", labels={"foo": "a"}),
            pod("f", node="b", labels={"foo": "b"}),
            pod("g", node="x", labels={"bar": "a"}),
        ],
        spread_pod(spread("node", selector(), match_label_keys=["foo"]), foo="a"),
        refused={"a": SKEW},
    ),
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
        FOUR,
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
#: Makes the pods' own replica set the source of the default selector.
OWNED: Final = pod(labels={"foo": "x"}, owner=owned_by("ReplicaSet", "rs"))

DEFAULT_ROWS: Final = [
    row(
        "53 the owner is not found and no service matches",
        FOUR,
        foo(a=1),
        OWNED,
        scores="skipped",
    ),
    *(
        row(
            f"2.1 the default selector comes from the pod's {version} {kind}",
            [A, B],
            [owner, *foo(a=1), pod("e", node="b", labels={"bar": "x"})],
            pod(labels={"foo": "x"}, owner=owned_by(kind, "o", api_version=version)),
            config=defaults(HARD_NODE),
            refused=refused,
        )
        for kind, version, owner, refused in (
            ("ReplicaSet", "apps/v1", replica_set("o", FOO), {"a": SKEW}),
            ("StatefulSet", "apps/v1", stateful_set("o", FOO), {"a": SKEW}),
            ("ReplicationController", "v1", replication_controller("o", {"foo": "x"}), {"a": SKEW}),
            ("ReplicaSet", "extensions/v1beta1", replica_set("o", FOO), {}),
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

ROWS: Final = [*FILTER_ROWS, *DEFAULT_ROWS]
