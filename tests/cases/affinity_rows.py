"""
Edge cases of InterPodAffinity: rows 1-32 and 73-78 of the rules, and sentences of their sections.

Left out are the rows on what preemption and nominated pods add and remove (20, 75) and on waking pods (70).
"""

from typing import Final, Unpack

from tests.build import Json, affinity, configuration, namespace, node, pod, selector, term
from tests.cases.row import UR, Expected, Row, U

NAME: Final = "InterPodAffinity"

AFFINITY: Final = (UR, "node(s) didn't match pod affinity rules")
ANTI: Final = (U, "node(s) didn't match pod anti-affinity rules")
EXISTING: Final = (U, "node(s) didn't satisfy existing pods anti-affinity rules")

WEB: Final = selector("app=web")
BAD: Final = selector("app in {{bad}}")


def _row(
    id_: str, nodes: list[Json], others: list[Json], incoming: Json, **expected: Unpack[Expected]
) -> Row:
    return Row(id_, NAME, [*nodes, *others], incoming, **expected)


def _needs(*terms: Json) -> Json:
    return affinity(required=terms)


def _shuns(*terms: Json) -> Json:
    return affinity(anti_required=terms)


def _zone(name: str, zone: str, **labels: str) -> Json:
    return node(name, labels={"zone": zone, **labels})


ONE_ZONE: Final = [_zone("a", "z1", region="r1"), _zone("b", "z1", region="r1")]
TWO_ZONES: Final = [_zone("a", "z1", region="r1"), _zone("b", "z2", region="r1")]
NO_KEYS: Final = [node("a"), node("b")]
BOTH_TERMS: Final = (term("region", selector("app")), term("zone", selector("tier")))

FILTER_ROWS: Final = [
    _row(
        "1 existing anti-affinity that does not match",
        ONE_ZONE,
        [pod("e", node="a", affinity=_shuns(term("zone", selector("app=db"))))],
        pod(labels={"app": "web"}),
        refused={},
    ),
    _row(
        "2 existing anti-affinity on a node without the key",
        [node("a"), _zone("b", "z1")],
        [pod("e", node="a", affinity=_shuns(term("zone", WEB)))],
        pod(labels={"app": "web"}),
        refused={},
    ),
    _row(
        "3 own anti-affinity over a key that no node has",
        NO_KEYS,
        [pod("e", node="a", labels={"app": "web"})],
        pod(affinity=_shuns(term("zone", WEB))),
        refused={},
    ),
    _row(
        "4 two terms, each matched by another pod",
        ONE_ZONE,
        [pod("e1", node="a", labels={"app": "x"}), pod("e2", node="b", labels={"tier": "x"})],
        pod(affinity=_needs(*BOTH_TERMS)),
        refused={"a": AFFINITY, "b": AFFINITY},
    ),
    _row(
        "5 two terms, both matched by one pod",
        ONE_ZONE,
        [pod("e", node="a", labels={"app": "x", "tier": "x"})],
        pod(affinity=_needs(*BOTH_TERMS)),
        refused={},
    ),
    _row(
        "6 first pod of a group: others match one term only",
        TWO_ZONES,
        [pod("e", node="a", labels={"app": "x"})],
        pod(
            labels={"app": "x", "tier": "x"},
            affinity=_needs(term("zone", selector("app")), term("zone", selector("tier"))),
        ),
        refused={},
    ),
    _row(
        "7 first pod of a group, but no node has the key",
        NO_KEYS,
        [pod("e", node="a", labels={"app": "x"})],
        pod(
            labels={"app": "x", "tier": "x"},
            affinity=_needs(term("zone", selector("app")), term("zone", selector("tier"))),
        ),
        refused={"a": AFFINITY, "b": AFFINITY},
    ),
    _row(
        "8 NotIn its own label: no first-pod rule",
        ONE_ZONE,
        [],
        pod(labels={"app": "web"}, affinity=_needs(term("zone", selector("app notin web")))),
        refused={"a": AFFINITY, "b": AFFINITY},
    ),
    _row(
        "9 the match is in a namespace not listed",
        ONE_ZONE,
        [pod("e", namespace="y", node="a", labels={"app": "web"})],
        pod(affinity=_needs(term("zone", WEB, namespaces=["x"]))),
        refused={"a": AFFINITY, "b": AFFINITY},
    ),
    _row(
        "10 affinity holds in the whole region",
        [
            node("node1", labels={"region": "China"}),
            node("node2", labels={"region": "China", "zone": "az1"}),
            node("node3", labels={"region": "India"}),
        ],
        [pod("e", node="node1", labels={"app": "web"})],
        pod(affinity=_needs(term("region", WEB))),
        refused={"node3": AFFINITY},
    ),
    _row(
        "11 two anti terms: the wider one suffices",
        TWO_ZONES,
        [pod("e", node="a", labels={"app": "web"})],
        pod(affinity=_shuns(term("region", WEB), term("zone", WEB))),
        refused={"a": ANTI, "b": ANTI},
    ),
    _row(
        "12 existing pod with an anti term over a key that no node has",
        TWO_ZONES,
        [pod("e", node="a", affinity=_shuns(term("nowhere", WEB), term("zone", WEB)))],
        pod(labels={"app": "web"}),
        refused={"a": EXISTING},
    ),
    _row(
        "13 both sides object: the incoming pod's reason",
        TWO_ZONES,
        [pod("e", node="a", labels={"app": "web"}, affinity=_shuns(term("zone", WEB)))],
        pod(labels={"app": "web"}, affinity=_shuns(term("zone", WEB))),
        refused={"a": ANTI},
    ),
    _row(
        "14 any one of an existing pod's anti terms suffices",
        TWO_ZONES,
        [
            pod(
                "e",
                node="a",
                affinity=_shuns(term("zone", selector("service")), term("zone", selector("security"))),
            )
        ],
        pod(labels={"security": "S1"}),
        refused={"a": EXISTING},
    ),
    _row(
        "15 existing anti-affinity means its own namespace",
        TWO_ZONES,
        [pod("e", namespace="other", node="a", affinity=_shuns(term("zone", WEB)))],
        pod(labels={"app": "web"}),
        refused={},
    ),
    *(
        _row(
            f"16 namespaceSelector team1, match in a namespace of {team}",
            ONE_ZONE,
            [
                namespace("one", labels={"team": "team1"}),
                namespace("two", labels={"team": "team2"}),
                pod("e", namespace=name, node="a", labels={"app": "web"}),
            ],
            pod(affinity=_needs(term("zone", WEB, namespace_selector=selector("team in team1")))),
            refused=refused,
        )
        for team, name, refused in (("team1", "one", {}), ("team2", "two", {"a": AFFINITY, "b": AFFINITY}))
    ),
    _row(
        "17 namespaceSelector {} means every namespace",
        TWO_ZONES,
        [namespace("other"), pod("e", namespace="other", node="a", labels={"app": "web"})],
        pod(affinity=_shuns(term("zone", WEB, namespace_selector={}))),
        refused={"a": ANTI},
    ),
    *(
        _row(
            f"18 a bad value in {name}",
            ONE_ZONE,
            [],
            pod(affinity=bad),
            prefilter=(UR, f"parsing pod: {name}: "),
        )
        for name, bad in (
            ("requiredAffinityTerms", _needs(term("zone", BAD))),
            ("requiredAntiAffinityTerms", _shuns(term("zone", BAD))),
            ("preferredAffinityTerms", affinity(preferred=[(1, term("zone", BAD))])),
            ("preferredAntiAffinityTerms", affinity(anti_preferred=[(1, term("zone", BAD))])),
        )
    ),
    _row(
        "18 a bad value in a namespaceSelector",
        ONE_ZONE,
        [],
        pod(affinity=_needs(term("zone", WEB, namespace_selector=BAD))),
        prefilter=(UR, "parsing pod: requiredAffinityTerms: "),
    ),
    _row(
        "19 one pod matches two terms over one key",
        TWO_ZONES,
        [pod("e", node="a", labels={"app": "x", "tier": "x"})],
        pod(affinity=_needs(term("zone", selector("app")), term("zone", selector("tier")))),
        refused={"b": AFFINITY},
    ),
    _row(
        "21 own anti term whose namespaceSelector only excludes covers every namespace",
        TWO_ZONES,
        [
            namespace("prod", labels={"env": "prod"}),
            pod("e", namespace="prod", node="a", labels={"app": "web"}),
        ],
        pod(affinity=_shuns(term("zone", WEB, namespace_selector=selector("env notin prod")))),
        refused={"a": ANTI},
    ),
    _row(
        "22 the same selector on an existing pod leaves prod out",
        TWO_ZONES,
        [
            namespace("prod", labels={"env": "prod"}),
            pod(
                "e",
                node="a",
                affinity=_shuns(term("zone", WEB, namespace_selector=selector("env notin prod"))),
            ),
        ],
        pod(namespace="prod", labels={"app": "web"}),
        refused={},
    ),
    _row(
        "1.2 an existing pod's excluding namespaceSelector covers an unknown namespace",
        TWO_ZONES,
        [
            pod(
                "e",
                node="a",
                affinity=_shuns(term("zone", WEB, namespace_selector=selector("env notin prod"))),
            )
        ],
        pod(namespace="unknown", labels={"app": "web"}),
        refused={"a": EXISTING},
    ),
    _row(
        "1.2 labelSelector nil matches no pod",
        TWO_ZONES,
        [pod("e", node="a", labels={"app": "web"})],
        pod(affinity=_shuns(term("zone", None))),
        refused={},
    ),
    _row(
        "1.2 labelSelector {} matches every pod of the namespace",
        TWO_ZONES,
        [pod("e", node="a"), pod("f", namespace="other", node="b")],
        pod(affinity=_shuns(term("zone", {}))),
        refused={"a": ANTI},
    ),
    _row(
        "1.2 listed namespaces do not imply the own one",
        TWO_ZONES,
        [pod("e", node="a", labels={"app": "web"}), pod("f", namespace="x", node="b", labels={"app": "web"})],
        pod(affinity=_shuns(term("zone", WEB, namespaces=["x"]))),
        refused={"b": ANTI},
    ),
    _row(
        "1.2 namespaces and namespaceSelector unite",
        [*TWO_ZONES, _zone("c", "z3")],
        [
            namespace("x"),
            namespace("y", labels={"team": "t"}),
            namespace("z"),
            *(
                pod("e", namespace=n, node=on, labels={"app": "web"})
                for n, on in (("x", "a"), ("y", "b"), ("z", "c"))
            ),
        ],
        pod(affinity=_shuns(term("zone", WEB, namespaces=["x"], namespace_selector=selector("team=t")))),
        refused={"a": ANTI, "b": ANTI},
    ),
    _row(
        "1.2 a broken list of an existing pod is empty, its others stay",
        TWO_ZONES,
        [
            pod(
                "e",
                node="a",
                affinity=affinity(required=[term("zone", BAD)], anti_required=[term("zone", WEB)]),
            ),
            pod("f", node="b", affinity=_shuns(term("zone", WEB), term("zone", BAD))),
        ],
        pod(labels={"app": "web"}),
        refused={"a": EXISTING},
    ),
    _row(
        "1.3 a pod that is Succeeded, and one on a node that is gone, count nowhere",
        TWO_ZONES,
        [
            pod("e", node="a", labels={"app": "web"}, phase="Succeeded"),
            pod("f", node="gone", labels={"app": "web"}),
        ],
        pod(affinity=_shuns(term("zone", WEB))),
        refused={},
    ),
    _row(
        "1.4 an empty topology value is a domain",
        [_zone("a", ""), _zone("b", ""), _zone("c", "z1")],
        [pod("e", node="a", labels={"app": "web"})],
        pod(affinity=_shuns(term("zone", WEB))),
        refused={"a": ANTI, "b": ANTI},
    ),
    _row(
        "1.4 two pods satisfy two terms between them",
        [
            node("n1", labels={"rack": "A", "row": "1"}),
            node("n2", labels={"rack": "B", "row": "2"}),
            node("n3", labels={"rack": "A", "row": "2"}),
            node("n4", labels={"rack": "C", "row": "2"}),
        ],
        [pod("e", node="n1", labels={"app": "web"}), pod("f", node="n2", labels={"app": "web"})],
        pod(affinity=_needs(term("rack", WEB), term("row", WEB))),
        refused={"n4": AFFINITY},
    ),
    _row(
        "1.4 a match whose node has one of two keys ends the first-pod rule",
        [node("n1", labels={"rack": "A"}), node("n2", labels={"rack": "A", "row": "1"})],
        [pod("e", node="n1", labels={"app": "web"})],
        pod(labels={"app": "web"}, affinity=_needs(term("rack", WEB), term("row", WEB))),
        refused={"n1": AFFINITY, "n2": AFFINITY},
    ),
    _row(
        "73 all matches sit on nodes without the key: the first-pod rule holds",
        [node("a"), _zone("b", "z1")],
        [pod("e", node="a", labels={"app": "web"})],
        pod(labels={"app": "web"}, affinity=_needs(term("zone", WEB))),
        refused={"a": AFFINITY},
    ),
    _row(
        "74 a match in one zone closes the others, self-match or not",
        TWO_ZONES,
        [pod("e", node="a", labels={"app": "web"})],
        pod(labels={"app": "web"}, affinity=_needs(term("zone", WEB))),
        refused={"b": AFFINITY},
    ),
    _row(
        "76 the first of two replicas that shun each other",
        ONE_ZONE,
        [],
        pod(labels={"app": "web"}, affinity=_shuns(term("kubernetes.io/hostname", WEB))),
        refused={},
    ),
    _row(
        "76 the second of two replicas that shun each other",
        ONE_ZONE,
        [pod("e", node="a", labels={"app": "web"}, affinity=_shuns(term("kubernetes.io/hostname", WEB)))],
        pod(labels={"app": "web"}, affinity=_shuns(term("kubernetes.io/hostname", WEB))),
        refused={"a": ANTI},
    ),
    _row(
        "77 anti-affinity of a terminating pod still holds",
        TWO_ZONES,
        [pod("e", node="a", affinity=_shuns(term("zone", WEB)), terminating=True)],
        pod(labels={"app": "web"}),
        refused={"a": EXISTING},
    ),
]


def _prefers(weight: int, wanted: Json) -> Json:
    return affinity(preferred=[(weight, wanted)])


def _dislikes(weight: int, unwanted: Json) -> Json:
    return affinity(anti_preferred=[(weight, unwanted)])


def _web(name: str, on: str, **more: str) -> Json:
    return pod(name, node=on, labels={"app": "web", **more})


HOST: Final = "kubernetes.io/hostname"
THREE: Final = [node("node1", labels={"region": "r1"}), node("node2", labels={"region": "r2"}), node("node3")]
TWO: Final = THREE[:2]
FOUR: Final = [node(f"node{i}") for i in range(1, 5)]


def _hard_weight(weight: int) -> Json:
    return configuration({NAME: {"hardPodAffinityWeight": weight}})


def _ignoring() -> Json:
    return configuration({NAME: {"ignorePreferredTermsOfExistingPods": True}})


SCORE_ROWS: Final = [
    _row(
        "23 a match on a node without the key",
        THREE,
        [_web("e", "node1"), _web("f", "node3")],
        pod(affinity=_prefers(5, term("region", WEB))),
        scores={"node1": 100, "node2": 0, "node3": 0},
    ),
    _row(
        "24 one pod matches both terms, one only the lighter",
        THREE,
        [_web("e", "node1"), _web("f", "node2", tier="x")],
        pod(affinity=affinity(preferred=[(8, term("region", selector("tier"))), (2, term("region", WEB))])),
        scores={"node1": 20, "node2": 100, "node3": 0},
    ),
    _row(
        "25 required affinity of existing pods counts in reverse",
        THREE,
        [
            pod(
                f"e{i}",
                node=f"node{i}",
                affinity=_needs(term("region", WEB), term("region", selector("tier"))),
            )
            for i in (1, 2)
        ],
        pod(labels={"app": "web", "tier": "x"}),
        scores={"node1": 100, "node2": 100, "node3": 0},
    ),
    _row(
        "26 hardPodAffinityWeight 0 and nothing else",
        TWO,
        [pod("e", node="node1", affinity=_needs(term("region", WEB)))],
        pod(labels={"app": "web"}),
        config=_hard_weight(0),
        scores="skipped",
    ),
    _row(
        "27 preferred anti-affinity of an existing pod",
        THREE,
        [pod("e", node="node1", affinity=_dislikes(5, term("region", WEB)))],
        pod(labels={"app": "web"}),
        scores={"node1": 0, "node2": 100, "node3": 100},
    ),
    _row(
        "28 both kinds, both ways: 8, -5, 8, -5",
        FOUR,
        [
            pod("e1", node="node1", labels={"app": "liked"}),
            pod("e2", node="node2", labels={"app": "disliked"}),
            pod("e3", node="node3", affinity=_prefers(8, term(HOST, WEB))),
            pod("e4", node="node4", affinity=_dislikes(5, term(HOST, WEB))),
        ],
        pod(
            labels={"app": "web"},
            affinity=affinity(
                preferred=[(8, term(HOST, selector("app=liked")))],
                anti_preferred=[(5, term(HOST, selector("app=disliked")))],
            ),
        ),
        scores={"node1": 100, "node2": 0, "node3": 100, "node4": 0},
    ),
    _row(
        "29 the same on every node is nothing",
        ONE_ZONE,
        [_web("e", "a")],
        pod(affinity=_prefers(8, term("zone", WEB))),
        scores={"a": 0, "b": 0},
    ),
    *(
        _row(
            f"30 preferred terms of existing pods {word}",
            TWO,
            [pod("e", node="node2", affinity=_prefers(5, term("region", WEB)))],
            pod(labels={"app": "web"}),
            config=config,
            scores=scores,
        )
        for word, config, scores in (
            ("ignored", _ignoring(), "skipped"),
            ("not ignored", None, {"node1": 0, "node2": 100}),
        )
    ),
    *(
        _row(
            f"31 namespaces and selector, three pods against one, {word}",
            TWO,
            [
                *(pod(f"e{i}", namespace="n", node="node1", labels={"app": "web"}) for i in range(3)),
                pod("f", namespace="n", node="node2", labels={"app": "web"}),
                *(pod(f"g{i}", namespace="m", node="node2", labels={"app": "web"}) for i in range(5)),
            ],
            pod(affinity=wish(5, term("region", WEB, namespaces=["n"]))),
            scores=scores,
        )
        for word, wish, scores in (
            ("affinity", _prefers, {"node1": 100, "node2": 0}),
            ("anti-affinity", _dislikes, {"node1": 0, "node2": 100}),
        )
    ),
    _row(
        "32 a bad value in a preferred term is caught before scoring",
        TWO,
        [],
        pod(affinity=_prefers(1, term("region", BAD))),
        prefilter=(UR, "parsing pod: preferredAffinityTerms: "),
    ),
    _row(
        "78 only a required affinity, existing pods without any",
        ONE_ZONE,
        [_web("e", "a")],
        pod(affinity=_needs(term("zone", WEB))),
        scores="skipped",
    ),
    _row(
        "1.6 terms of existing pods count although ignored, if the pod prefers something",
        TWO,
        [pod("e", node="node2", affinity=_prefers(5, term("region", WEB)))],
        pod(labels={"app": "web"}, affinity=_prefers(1, term("region", selector("app=nobody")))),
        config=_ignoring(),
        scores={"node1": 0, "node2": 100},
    ),
    _row(
        "1.6 weights that cancel out are no skip",
        TWO,
        [_web("e", "node1")],
        pod(
            affinity=affinity(preferred=[(5, term("region", WEB))], anti_preferred=[(5, term("region", WEB))])
        ),
        scores={"node1": 0, "node2": 0},
    ),
    _row(
        "1.6 hardPodAffinityWeight counts each required term alone",
        THREE,
        [
            pod(
                "e", node="node1", affinity=_needs(term("region", WEB), term("region", selector("app=other")))
            ),
            pod("f", node="node2", affinity=_prefers(50, term("region", WEB))),
        ],
        pod(labels={"app": "web"}),
        config=_hard_weight(25),
        scores={"node1": 50, "node2": 100, "node3": 0},
    ),
    _row(
        "1.7 29 of 100 is 28 in floating point",
        FOUR[:3],
        [pod("e", node="node2", labels={"app": "few"}), pod("f", node="node3", labels={"app": "many"})],
        pod(
            affinity=affinity(
                preferred=[(29, term(HOST, selector("app=few"))), (100, term(HOST, selector("app=many")))]
            )
        ),
        scores={"node1": 0, "node2": 28, "node3": 100},
    ),
    _row(
        "1.8 a terminating pod scores like any other",
        TWO,
        [pod("e", node="node2", labels={"app": "web"}, terminating=True)],
        pod(affinity=_prefers(5, term("region", WEB))),
        scores={"node1": 0, "node2": 100},
    ),
]

ROWS: Final = [*FILTER_ROWS, *SCORE_ROWS]
