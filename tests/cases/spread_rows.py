"""
Edge cases of PodTopologySpread: rows 33-67 and 79-88 of the rules, and sentences of their sections.

Left out are the rows on what preemption and nominated pods add and remove (54, 87) and on waking pods (71, 72).
In names like "2/1/0/3": pods that match, by node.
"""

from collections.abc import Sequence
from typing import Final, Unpack

from tests.build import (
    HOSTNAME,
    ZONE,
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
from tests.cases.row import UR, Expected, Row, U

NAME: Final = "PodTopologySpread"

SKEW: Final = (U, "node(s) didn't match pod topology spread constraints")
NO_KEY: Final = (UR, "node(s) didn't match pod topology spread constraints (missing required label)")

FOO: Final = selector("foo")


def _row(
    id_: str, nodes: Sequence[Json], others: Sequence[Json], incoming: Json, **expected: Unpack[Expected]
) -> Row:
    return Row(id_, NAME, [*nodes, *others], incoming, **expected)


def _spread_pod(*constraints: Json, **labels: str) -> Json:
    return pod(labels=labels or {"foo": "x"}, spread=constraints)


def _at(name: str, zone: str, **labels: str) -> Json:
    return node(name, labels={"zone": zone, "node": name, **labels})


def _foo(**counts: int) -> list[Json]:
    """Pods with label foo, so many on each named node."""
    return [
        pod(f"{on}-{i}", node=on, labels={"foo": "x"}) for on, count in counts.items() for i in range(count)
    ]


A: Final = _at("a", "zone1")
B: Final = _at("b", "zone1")
X: Final = _at("x", "zone2")
Y: Final = _at("y", "zone2")
FOUR: Final = [A, B, X, Y]

FILTER_ROWS: Final = [
    _row(
        "33 selector nil",
        FOUR,
        _foo(a=2, x=1),
        _spread_pod(spread("zone", None)),
        refused={},
    ),
    _row(
        "34 pods of other namespaces do not count",
        FOUR,
        [
            pod("e", namespace="ns1", node="a", labels={"foo": "x"}),
            pod("f", namespace="ns2", node="a", labels={"foo": "x"}),
            *_foo(x=1, y=1),
        ],
        _spread_pod(spread("zone", FOO)),
        refused={"x": SKEW, "y": SKEW},
    ),
    _row(
        "35 a node without the key, and with a pod",
        [A, node("b", labels={"node": "b"}), X, Y],
        _foo(a=1, b=1, x=1, y=1),
        _spread_pod(spread("zone", FOO)),
        refused={"b": NO_KEY, "x": SKEW, "y": SKEW},
    ),
    _row(
        "36 no node has the key",
        [node("a"), node("b")],
        _foo(a=1),
        _spread_pod(spread("zone", FOO)),
        refused={"a": NO_KEY, "b": NO_KEY},
    ),
    *(
        _row(
            f"37 2/1/0/3 with maxSkew {max_skew}",
            FOUR,
            _foo(a=2, b=1, y=3),
            _spread_pod(spread("node", FOO, max_skew=max_skew)),
            refused=dict.fromkeys(refused, SKEW),
        )
        for max_skew, refused in ((1, "aby"), (2, "ay"))
    ),
    _row(
        "38 2/1/0/3 for a pod that does not match itself",
        FOUR,
        _foo(a=2, b=1, y=3),
        _spread_pod(spread("node", FOO), bar="x"),
        refused={"a": SKEW, "y": SKEW},
    ),
    _row(
        "39 node selector limits the domains to a and y: 2/-/-/3",
        [_at("a", "zone1", pick="me"), B, X, _at("y", "zone2", pick="me")],
        _foo(a=2, b=1, y=3),
        pod(labels={"foo": "x"}, node_selector={"pick": "me"}, spread=[spread("node", FOO)]),
        refused={"y": SKEW},
    ),
    _row(
        "40 a terminating pod does not count",
        [A, B],
        [pod("e", node="a", labels={"foo": "x"}, terminating=True), *_foo(b=1)],
        _spread_pod(spread("node", FOO)),
        refused={"b": SKEW},
    ),
    *(
        _row(
            f"41 2/2/1, maxSkew 2, minDomains {min_domains}",
            [A, B, X],
            _foo(a=2, b=2, x=1),
            _spread_pod(spread("node", FOO, max_skew=2, min_domains=min_domains)),
            refused=dict.fromkeys(refused, SKEW),
        )
        for min_domains, refused in ((4, "ab"), (2, ""))
    ),
    _row(
        "42 zones 2/1, maxSkew 2, minDomains 3",
        FOUR,
        _foo(a=1, b=1, x=1),
        _spread_pod(spread("zone", FOO, max_skew=2, min_domains=3)),
        refused={"a": SKEW, "b": SKEW},
    ),
    _row(
        "43 zones 3/4 and nodes 2/1/0/4",
        FOUR,
        _foo(a=2, b=1, y=4),
        _spread_pod(spread("zone", FOO), spread("node", FOO)),
        refused=dict.fromkeys("abxy", SKEW),
    ),
    _row(
        "44 zone and node: a node without one key is in no domain of the other",
        [A, B, node("x", labels={"zone": "zone2"}), Y],
        _foo(a=1, y=1),
        _spread_pod(spread("zone", FOO), spread("node", FOO)),
        refused={"a": SKEW, "x": NO_KEY, "y": SKEW},
    ),
    _row(
        "45 one constraint honours node affinity, one does not",
        [_at("a", "zone1", pick="me"), _at("b", "zone1", pick="me"), _at("x", "zone2", pick="me"), Y],
        _foo(a=1, b=1, y=1),
        pod(
            labels={"foo": "x"},
            node_selector={"pick": "me"},
            spread=[spread("zone", FOO), spread("node", FOO, affinity_policy="Ignore")],
        ),
        refused={"a": SKEW, "b": SKEW, "y": SKEW},
    ),
    *(
        _row(
            f"46 nodeTaintsPolicy Honor, node c {word}",
            [A, B, node("c", labels={"node": "c"}, taints=["dedicated=x:NoSchedule"])],
            _foo(a=1, b=1),
            pod(
                labels={"foo": "x"},
                tolerations=[{"operator": "Exists"}] if word == "tolerated" else [],
                spread=[spread("node", FOO, taints_policy="Honor")],
            ),
            refused=dict.fromkeys(refused, SKEW),
        )
        for word, refused in (("not tolerated", ""), ("tolerated", "ab"))
    ),
    _row(
        "47 matchLabelKeys that the pod lacks",
        [A, B],
        _foo(a=1),
        _spread_pod(spread("node", FOO, match_label_keys=["bar"])),
        refused={"a": SKEW},
    ),
    _row(
        "48 selector {} with matchLabelKeys counts the pod's own value",
        [A, B, X],
        [
            pod("e", node="a", labels={"foo": "a"}),
            pod("f", node="b", labels={"foo": "b"}),
            pod("g", node="x", labels={"bar": "a"}),
        ],
        _spread_pod(spread("node", selector(), match_label_keys=["foo"]), foo="a"),
        refused={"a": SKEW},
    ),
    _row(
        "49 selector nil with matchLabelKeys",
        [A, B],
        _foo(a=1),
        _spread_pod(spread("node", None, match_label_keys=["foo"])),
        refused={},
    ),
    _row(
        "55 selector {} never rejects but for a missing key",
        [A, B, node("c")],
        _foo(a=5),
        _spread_pod(spread("node", selector())),
        refused={"c": NO_KEY},
    ),
    _row(
        "79 an empty value is a domain",
        [_at("a", ""), _at("b", "zone1")],
        _foo(a=1),
        _spread_pod(spread("zone", FOO)),
        refused={"a": SKEW},
    ),
    _row(
        "80 a cordoned, tainted node is the only empty domain",
        [A, B, node("c", labels={"node": "c"}, unschedulable=True, taints=["dedicated=x:NoSchedule"])],
        _foo(a=1, b=1),
        _spread_pod(spread("node", FOO)),
        refused={"a": SKEW, "b": SKEW},
    ),
    _row(
        "81 a zone only on nodes that the nodeSelector excludes, minDomains 3",
        [_at("a", "zone1", pick="me"), _at("x", "zone2", pick="me"), _at("c", "zone3")],
        _foo(a=1, x=1),
        pod(labels={"foo": "x"}, node_selector={"pick": "me"}, spread=[spread("zone", FOO, min_domains=3)]),
        refused={"a": SKEW, "x": SKEW},
    ),
    _row(
        "82 two nodes with one hostname are one domain to the filter",
        [node("a", hostname="h"), node("b", hostname="h"), node("x")],
        _foo(a=1, b=1, x=1),
        _spread_pod(spread(HOSTNAME, FOO)),
        refused={"a": SKEW, "b": SKEW},
    ),
    _row(
        "88 a label edited after its value was merged: nothing matches",
        [A, B, node("c")],
        [pod("e", node="a", labels={"v": "1"}), pod("f", node="a", labels={"v": "2"})],
        _spread_pod(spread("node", selector("v in 1"), match_label_keys=["v"]), v="2"),
        refused={"c": NO_KEY},
    ),
    _row(
        "2.1 a pod's soft constraint does not filter",
        FOUR,
        _foo(a=5),
        _spread_pod(spread("node", FOO, soft=True)),
        refused={},
    ),
    _row(
        "2.2 a selector that does not parse",
        FOUR,
        [],
        _spread_pod(spread("node", selector("foo in {{bad}}"))),
        error='running PreFilter plugin "PodTopologySpread": get constraints from pod: ',
    ),
    _row(
        "2.2 matchLabelKeys not merged at creation narrow the selector all the same",
        [A, B],
        [
            pod("e", node="a", labels={"foo": "x", "v": "1"}),
            pod("f", node="b", labels={"foo": "x", "v": "2"}),
        ],
        _spread_pod(spread("node", FOO, match_label_keys=["v"]), foo="x", v="2"),
        refused={"b": SKEW},
    ),
    _row(
        "2.5 skew of the first constraint before the missing key of the second",
        [A, B, node("x", labels={"zone": "zone1"}), Y],
        _foo(a=2),
        _spread_pod(spread("zone", FOO), spread("node", FOO)),
        refused={"a": SKEW, "b": SKEW, "x": SKEW},
    ),
]


def _defaults(*constraints: Json) -> Json:
    return configuration({NAME: {"defaultingType": "List", "defaultConstraints": list(constraints)}})


HARD_NODE: Final = spread("node", None)
SOFT_ZONE: Final = spread("zone", None, soft=True)
FOO_SERVICE: Final = service("s", {"foo": "x"})
OTHER_SERVICE: Final = service("s", {"foo": "other"})
#: Makes the pods' own replica set the source of the default selector.
OWNED: Final = pod(labels={"foo": "x"}, owner=owned_by("ReplicaSet", "rs"))

DEFAULT_ROWS: Final = [
    _row(
        "50 List defaults, hard and soft: the hard one filters",
        FOUR,
        [FOO_SERVICE, *_foo(a=1, b=1, x=1)],
        pod(labels={"foo": "x"}),
        config=_defaults(HARD_NODE, SOFT_ZONE),
        refused={"a": SKEW, "b": SKEW, "x": SKEW},
    ),
    _row(
        "51 List defaults, no service matches",
        FOUR,
        [OTHER_SERVICE, *_foo(a=1, b=1, x=1)],
        pod(labels={"foo": "x"}),
        config=_defaults(HARD_NODE, SOFT_ZONE),
        refused={},
        scores="skipped",
    ),
    _row(
        "51 List defaults, soft ones only",
        FOUR,
        [FOO_SERVICE, *_foo(a=1, b=1, x=1)],
        pod(labels={"foo": "x"}),
        config=_defaults(SOFT_ZONE),
        refused={},
    ),
    _row(
        "52 own constraints switch the defaults off",
        FOUR,
        [FOO_SERVICE, *_foo(a=1, b=1, x=1)],
        _spread_pod(spread("zone", FOO)),
        config=_defaults(HARD_NODE, SOFT_ZONE),
        refused={"a": SKEW, "b": SKEW},
        scores="skipped",
    ),
    _row(
        "53 the owner is not found and no service matches",
        FOUR,
        _foo(a=1),
        OWNED,
        scores="skipped",
    ),
    *(
        _row(
            f"2.1 the default selector comes from the pod's {kind}",
            [A, B],
            [owner, *_foo(a=1), pod("e", node="b", labels={"bar": "x"})],
            pod(labels={"foo": "x"}, owner=owned_by(kind, "o", api_version=version)),
            config=_defaults(HARD_NODE),
            refused=refused,
        )
        for kind, version, owner, refused in (
            ("ReplicaSet", "apps/v1", replica_set("o", FOO), {"a": SKEW}),
            ("StatefulSet", "apps/v1", stateful_set("o", FOO), {"a": SKEW}),
            ("ReplicationController", "v1", replication_controller("o", {"foo": "x"}), {"a": SKEW}),
            ("ReplicaSet", "extensions/v1beta1", replica_set("o", FOO), {}),
        )
    ),
    _row(
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
        config=_defaults(HARD_NODE),
        refused={"a": SKEW},
    ),
    _row(
        "2.1 a service of another namespace",
        [A, B],
        [service("s", {"foo": "x"}, namespace="other"), *_foo(a=1)],
        pod(labels={"foo": "x"}),
        config=_defaults(HARD_NODE),
        refused={},
    ),
]


def _hosts(**counts: int) -> list[Json]:
    return [*(node(name) for name in counts), *_foo(**counts)]


TAINTED: Final = node("c", labels={"node": "c"}, taints=["dedicated=x:NoSchedule"])
#: Lets a pod onto nodes whose taints it does not tolerate, so that spreading alone has a view of them.
TAINTS_OFF: Final = configuration(filters_off=["TaintToleration"])


def _soft_hosts(max_skew: int = 1) -> Json:
    return spread(HOSTNAME, FOO, soft=True, max_skew=max_skew)


SCORE_ROWS: Final = [
    _row(
        "56 hostname, no pods",
        _hosts(a=0, b=0),
        [],
        _spread_pod(_soft_hosts()),
        scores={"a": 100, "b": 100},
    ),
    *(
        _row(
            f"57 hostname 2/1/0/3, maxSkew {max_skew}",
            _hosts(a=2, b=1, x=0, y=3),
            [],
            _spread_pod(_soft_hosts(max_skew)),
            scores=scores,
        )
        for max_skew, scores in (
            (1, {"a": 20, "b": 60, "x": 100, "y": 0}),
            (2, {"a": 33, "b": 66, "x": 100, "y": 16}),
        )
    ),
    _row(
        "58 hostname 4/3/2/1, maxSkew 3",
        _hosts(a=4, b=3, x=2, y=1),
        [],
        _spread_pod(_soft_hosts(3)),
        scores={"a": 44, "b": 66, "x": 77, "y": 100},
    ),
    _row(
        "59 System defaults by a service, no zones, 4/3/2/1",
        _hosts(a=4, b=3, x=2, y=1),
        [FOO_SERVICE],
        pod(labels={"foo": "x"}),
        scores={"a": 44, "b": 66, "x": 77, "y": 100},
    ),
    _row(
        "60 a node without the key is ignored",
        [node("a"), node("b", hostname=None), node("x")],
        _foo(a=4, b=2, x=1),
        _spread_pod(_soft_hosts()),
        scores={"a": 16, "b": 0, "x": 100},
    ),
    _row(
        "61 pods on infeasible nodes of the zone count",
        [A, B, X, node("y", labels={"zone": "zone2"}, unschedulable=True)],
        _foo(a=3, b=3, x=1, y=3),
        _spread_pod(spread("zone", FOO, soft=True)),
        scores={"a": 75, "b": 75, "x": 100},
    ),
    _row(
        "62 zone and hostname",
        [
            A,
            node("b", labels={"zone": "zone1"}, unschedulable=True),
            X,
            node("y", labels={"zone": "zone2"}, unschedulable=True),
        ],
        _foo(a=2, b=1, x=2, y=4),
        _spread_pod(spread("zone", FOO, soft=True), _soft_hosts()),
        scores={"a": 100, "x": 63},
    ),
    _row(
        "63 two constraints over one key: foo 3/3, bar 2/1",
        [A, X],
        [
            *_foo(a=3, x=3),
            *(pod(f"bar{i}", node=on, labels={"bar": "x"}) for i, on in enumerate("aax")),
        ],
        pod(
            labels={"foo": "x", "bar": "x"},
            spread=[spread("zone", FOO, soft=True), spread("zone", selector("bar"), soft=True)],
        ),
        scores={"a": 85, "x": 100},
    ),
    _row(
        "64 pods of another namespace do not count",
        _hosts(a=1, b=2),
        [pod("e", namespace="other", node="a", labels={"foo": "x"})],
        _spread_pod(_soft_hosts()),
        scores={"a": 100, "b": 33},
    ),
    *(
        _row(
            f"65 key node 2/1/1, an excluded but feasible node, policy {policy}",
            [A, B, TAINTED],
            _foo(a=2, b=1, c=1),
            _spread_pod(spread("node", FOO, soft=True, taints_policy=policy)),
            config=TAINTS_OFF,
            scores=scores,
        )
        for policy, scores in (
            ("Honor", {"a": 0, "b": 33, "c": 100}),
            ("Ignore", {"a": 66, "b": 100, "c": 100}),
        )
    ),
    _row(
        "66 minDomains of a soft constraint",
        [A, B, X],
        _foo(a=2, b=2, x=1),
        _spread_pod(spread("node", FOO, soft=True, max_skew=2, min_domains=2)),
        scores={"a": 75, "b": 75, "x": 100},
    ),
    _row(
        # Zone sizes {z, ""} = 2: ln 4; hostname size 4: ln 6. Raw 13, 17, 6, 2.
        "67 System defaults, two nodes of one zone, two of none: 1/3/2/0",
        [node("a", labels={ZONE: "z"}), node("b", labels={ZONE: "z"}), node("x"), node("y")],
        [FOO_SERVICE, *_foo(a=1, b=3, x=2)],
        pod(labels={"foo": "x"}),
        scores={"a": 35, "b": 11, "x": 76, "y": 100},
    ),
    _row(
        # w = ln 5: raw 3, 0, 2.
        "82 two nodes with one hostname: each is scored with its own pods",
        [node("a", hostname="h"), node("b", hostname="h"), node("x")],
        _foo(a=2, x=1),
        _spread_pod(_soft_hosts()),
        scores={"a": 0, "b": 100, "x": 33},
    ),
    _row(
        "83 hostname 2/1/1, an excluded but feasible node, policy Honor: its pods count",
        [A, B, TAINTED],
        _foo(a=2, b=1, c=1),
        _spread_pod(spread(HOSTNAME, FOO, soft=True, taints_policy="Honor")),
        config=TAINTS_OFF,
        scores={"a": 66, "b": 100, "c": 100},
    ),
    _row(
        "84 a hard constraint alone switches the System defaults off",
        FOUR,
        [FOO_SERVICE, *_foo(a=1)],
        _spread_pod(spread("zone", FOO, max_skew=5)),
        scores="skipped",
    ),
    *(
        _row(
            f"85 {word} defaults, a node without one soft key",
            [node("a", labels={ZONE: "z"}), node("b")],
            [FOO_SERVICE, *_foo(a=1)],
            pod(labels={"foo": "x"}),
            config=config,
            scores=scores,
        )
        for word, config, scores in (
            (
                "List",
                _defaults(
                    spread(HOSTNAME, None, soft=True, max_skew=3), spread(ZONE, None, soft=True, max_skew=5)
                ),
                {"a": 100, "b": 0},
            ),
            # Raw: a ln 4 + 2 + ln 4 + 4 = 8.77 -> 9, b 2.
            ("System", None, {"a": 22, "b": 100}),
        )
    ),
    _row(
        "86 all feasible nodes ignored",
        _hosts(a=1, b=0),
        [],
        _spread_pod(spread("nowhere", FOO, soft=True)),
        scores={"a": 0, "b": 0},
    ),
    _row(
        # w = ln 4: a 1.39 + 1.39 -> 3, x 4.16 + 0 -> 4. Rounded one by one, a would be 2 and x would get 50.
        "2.8 the total of all constraints is rounded, not each",
        [A, X],
        [*_foo(a=1, x=3), pod("bar", node="a", labels={"bar": "x"})],
        pod(
            labels={"foo": "x", "bar": "x"},
            spread=[spread("zone", FOO, soft=True), spread("zone", selector("bar"), soft=True)],
        ),
        scores={"a": 100, "x": 75},
    ),
]

ROWS: Final = [*FILTER_ROWS, *DEFAULT_ROWS, *SCORE_ROWS]
