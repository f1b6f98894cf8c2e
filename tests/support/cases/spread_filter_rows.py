"""
Edge cases of PodTopologySpread's filter and defaults: rows 33-55, 79-82 and 88 of the rules, and sentences of them.

Left out are the rows on what preemption and nominated pods add and remove (54, 87) and on waking pods (71, 72).
In names like "2/1/0/3": pods that match, by node.
"""

from collections.abc import Sequence
from typing import Final, Unpack

from tests.support.build import (
    HOSTNAME,
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
from tests.support.cases.row import UR, Expected, Row, U

NAME: Final = "PodTopologySpread"

SKEW: Final = (U, "node(s) didn't match pod topology spread constraints")
NO_KEY: Final = (UR, "node(s) didn't match pod topology spread constraints (missing required label)")

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
    row(
        "33 selector nil",
        FOUR,
        foo(a=2, x=1),
        spread_pod(spread("zone", None)),
        refused={},
    ),
    row(
        "34 pods of other namespaces do not count",
        FOUR,
        [
            pod("e", namespace="ns1", node="a", labels={"foo": "x"}),
            pod("f", namespace="ns2", node="a", labels={"foo": "x"}),
            *foo(x=1, y=1),
        ],
        spread_pod(spread("zone", FOO)),
        refused={"x": SKEW, "y": SKEW},
    ),
    row(
        "35 a node without the key, and with a pod",
        [A, node("b", labels={"node": "b"}), X, Y],
        foo(a=1, b=1, x=1, y=1),
        spread_pod(spread("zone", FOO)),
        refused={"b": NO_KEY, "x": SKEW, "y": SKEW},
    ),
    row(
        "36 no node has the key",
        [node("a"), node("b")],
        foo(a=1),
        spread_pod(spread("zone", FOO)),
        refused={"a": NO_KEY, "b": NO_KEY},
    ),
    *(
        row(
            f"37 2/1/0/3 with maxSkew {max_skew}",
            FOUR,
            foo(a=2, b=1, y=3),
            spread_pod(spread("node", FOO, max_skew=max_skew)),
            refused=dict.fromkeys(refused, SKEW),
        )
        for max_skew, refused in ((1, "aby"), (2, "ay"))
    ),
    row(
        "38 2/1/0/3 for a pod that does not match itself",
        FOUR,
        foo(a=2, b=1, y=3),
        spread_pod(spread("node", FOO), bar="x"),
        refused={"a": SKEW, "y": SKEW},
    ),
    row(
        "39 node selector limits the domains to a and y: 2/-/-/3",
        [_at("a", "zone1", pick="me"), B, X, _at("y", "zone2", pick="me")],
        foo(a=2, b=1, y=3),
        pod(labels={"foo": "x"}, node_selector={"pick": "me"}, spread=[spread("node", FOO)]),
        refused={"y": SKEW},
    ),
    row(
        "40 a terminating pod does not count",
        [A, B],
        [pod("e", node="a", labels={"foo": "x"}, terminating=True), *foo(b=1)],
        spread_pod(spread("node", FOO)),
        refused={"b": SKEW},
    ),
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
        "43 zones 3/4 and nodes 2/1/0/4",
        FOUR,
        foo(a=2, b=1, y=4),
        spread_pod(spread("zone", FOO), spread("node", FOO)),
        refused=dict.fromkeys("abxy", SKEW),
    ),
    row(
        "44 zone and node: a node without one key is in no domain of the other",
        [A, B, node("x", labels={"zone": "zone2"}), Y],
        foo(a=1, y=1),
        spread_pod(spread("zone", FOO), spread("node", FOO)),
        refused={"a": SKEW, "x": NO_KEY, "y": SKEW},
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
    *(
        row(
            f"46 nodeTaintsPolicy Honor, node c {word}",
            [A, B, node("c", labels={"node": "c"}, taints=["dedicated=x:NoSchedule"])],
            foo(a=1, b=1),
            pod(
                labels={"foo": "x"},
                tolerations=[{"operator": "Exists"}] if word == "tolerated" else [],
                spread=[spread("node", FOO, taints_policy="Honor")],
            ),
            refused=dict.fromkeys(refused, SKEW),
        )
        for word, refused in (("not tolerated", ""), ("tolerated", "ab"))
    ),
    row(
        "47 matchLabelKeys that the pod lacks",
        [A, B],
        foo(a=1),
        spread_pod(spread("node", FOO, match_label_keys=["bar"])),
        refused={"a": SKEW},
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
        "55 selector {} never rejects but for a missing key",
        [A, B, node("c")],
        foo(a=5),
        spread_pod(spread("node", selector())),
        refused={"c": NO_KEY},
    ),
    row(
        "79 an empty value is a domain",
        [_at("a", ""), _at("b", "zone1")],
        foo(a=1),
        spread_pod(spread("zone", FOO)),
        refused={"a": SKEW},
    ),
    row(
        "80 a cordoned, tainted node is the only empty domain",
        [A, B, node("c", labels={"node": "c"}, unschedulable=True, taints=["dedicated=x:NoSchedule"])],
        foo(a=1, b=1),
        spread_pod(spread("node", FOO)),
        refused={"a": SKEW, "b": SKEW},
    ),
    row(
        "81 a zone only on nodes that the nodeSelector excludes, minDomains 3",
        [_at("a", "zone1", pick="me"), _at("x", "zone2", pick="me"), _at("c", "zone3")],
        foo(a=1, x=1),
        pod(labels={"foo": "x"}, node_selector={"pick": "me"}, spread=[spread("zone", FOO, min_domains=3)]),
        refused={"a": SKEW, "x": SKEW},
    ),
    row(
        "82 two nodes with one hostname are one domain to the filter",
        [node("a", hostname="h"), node("b", hostname="h"), node("x")],
        foo(a=1, b=1, x=1),
        spread_pod(spread(HOSTNAME, FOO)),
        refused={"a": SKEW, "b": SKEW},
    ),
    row(
        "88 a label edited after its value was merged: nothing matches",
        [A, B, node("c")],
        [pod("e", node="a", labels={"v": "1"}), pod("f", node="a", labels={"v": "2"})],
        spread_pod(spread("node", selector("v in 1"), match_label_keys=["v"]), v="2"),
        refused={"c": NO_KEY},
    ),
    row(
        "2.1 a pod's soft constraint does not filter",
        FOUR,
        foo(a=5),
        spread_pod(spread("node", FOO, soft=True)),
        refused={},
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
    row(
        "2.5 skew of the first constraint before the missing key of the second",
        [A, B, node("x", labels={"zone": "zone1"}), Y],
        foo(a=2),
        spread_pod(spread("zone", FOO), spread("node", FOO)),
        refused={"a": SKEW, "b": SKEW, "x": SKEW},
    ),
]


def defaults(*constraints: Json) -> Json:
    """Return a configuration with these default constraints."""
    return configuration({NAME: {"defaultingType": "List", "defaultConstraints": list(constraints)}})


HARD_NODE: Final = spread("node", None)
SOFT_ZONE: Final = spread("zone", None, soft=True)
FOO_SERVICE: Final = service("s", {"foo": "x"})
OTHER_SERVICE: Final = service("s", {"foo": "other"})
#: Makes the pods' own replica set the source of the default selector.
OWNED: Final = pod(labels={"foo": "x"}, owner=owned_by("ReplicaSet", "rs"))

DEFAULT_ROWS: Final = [
    row(
        "50 List defaults, hard and soft: the hard one filters",
        FOUR,
        [FOO_SERVICE, *foo(a=1, b=1, x=1)],
        pod(labels={"foo": "x"}),
        config=defaults(HARD_NODE, SOFT_ZONE),
        refused={"a": SKEW, "b": SKEW, "x": SKEW},
    ),
    row(
        "51 List defaults, no service matches",
        FOUR,
        [OTHER_SERVICE, *foo(a=1, b=1, x=1)],
        pod(labels={"foo": "x"}),
        config=defaults(HARD_NODE, SOFT_ZONE),
        refused={},
        scores="skipped",
    ),
    row(
        "51 List defaults, soft ones only",
        FOUR,
        [FOO_SERVICE, *foo(a=1, b=1, x=1)],
        pod(labels={"foo": "x"}),
        config=defaults(SOFT_ZONE),
        refused={},
    ),
    row(
        "52 own constraints switch the defaults off",
        FOUR,
        [FOO_SERVICE, *foo(a=1, b=1, x=1)],
        spread_pod(spread("zone", FOO)),
        config=defaults(HARD_NODE, SOFT_ZONE),
        refused={"a": SKEW, "b": SKEW},
        scores="skipped",
    ),
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
    row(
        "2.1 a service of another namespace",
        [A, B],
        [service("s", {"foo": "x"}, namespace="other"), *foo(a=1)],
        pod(labels={"foo": "x"}),
        config=defaults(HARD_NODE),
        refused={},
    ),
]

ROWS: Final = [*FILTER_ROWS, *DEFAULT_ROWS]
