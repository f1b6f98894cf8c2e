"""
Edge cases of InterPodAffinity's filter: rows 1-22 and 73-77 of the rules, and sentences of their sections.

Left out are the rows on what preemption and nominated pods add and remove (20, 75) and on waking pods (70).
"""

from typing import Final, Unpack

from tests.support.build import Json, affinity, namespace, node, pod, selector, term
from tests.support.cases.row import UR, Expected, Row, U

NAME: Final = "InterPodAffinity"

AFFINITY: Final = (UR, "node(s) didn't match pod affinity rules")
ANTI: Final = (U, "node(s) didn't match pod anti-affinity rules")
EXISTING: Final = (U, "node(s) didn't satisfy existing pods anti-affinity rules")

WEB: Final = selector("app=web")
BAD: Final = selector("app in {{bad}}")


def row(id_: str, nodes: list[Json], others: list[Json], incoming: Json, **expected: Unpack[Expected]) -> Row:
    return Row(id_, NAME, [*nodes, *others], incoming, **expected)


def needs(*terms: Json) -> Json:
    """Return an affinity with these required terms."""
    return affinity(required=terms)


def shuns(*terms: Json) -> Json:
    """Return an affinity with these required anti-affinity terms."""
    return affinity(anti_required=terms)


def _zone(name: str, zone: str, **labels: str) -> Json:
    return node(name, labels={"zone": zone, **labels})


ONE_ZONE: Final = [_zone("a", "z1", region="r1"), _zone("b", "z1", region="r1")]
TWO_ZONES: Final = [_zone("a", "z1", region="r1"), _zone("b", "z2", region="r1")]
NO_KEYS: Final = [node("a"), node("b")]
BOTH_TERMS: Final = (term("region", selector("app")), term("zone", selector("tier")))

ROWS: Final = [
    row(
        "1 existing anti-affinity that does not match",
        ONE_ZONE,
        [pod("e", node="a", affinity=shuns(term("zone", selector("app=db"))))],
        pod(labels={"app": "web"}),
        refused={},
    ),
    row(
        "2 existing anti-affinity on a node without the key",
        [node("a"), _zone("b", "z1")],
        [pod("e", node="a", affinity=shuns(term("zone", WEB)))],
        pod(labels={"app": "web"}),
        refused={},
    ),
    row(
        "3 own anti-affinity over a key that no node has",
        NO_KEYS,
        [pod("e", node="a", labels={"app": "web"})],
        pod(affinity=shuns(term("zone", WEB))),
        refused={},
    ),
    row(
        "4 two terms, each matched by another pod",
        ONE_ZONE,
        [pod("e1", node="a", labels={"app": "x"}), pod("e2", node="b", labels={"tier": "x"})],
        pod(affinity=needs(*BOTH_TERMS)),
        refused={"a": AFFINITY, "b": AFFINITY},
    ),
    row(
        "5 two terms, both matched by one pod",
        ONE_ZONE,
        [pod("e", node="a", labels={"app": "x", "tier": "x"})],
        pod(affinity=needs(*BOTH_TERMS)),
        refused={},
    ),
    row(
        "6 first pod of a group: others match one term only",
        TWO_ZONES,
        [pod("e", node="a", labels={"app": "x"})],
        pod(
            labels={"app": "x", "tier": "x"},
            affinity=needs(term("zone", selector("app")), term("zone", selector("tier"))),
        ),
        refused={},
    ),
    row(
        "7 first pod of a group, but no node has the key",
        NO_KEYS,
        [pod("e", node="a", labels={"app": "x"})],
        pod(
            labels={"app": "x", "tier": "x"},
            affinity=needs(term("zone", selector("app")), term("zone", selector("tier"))),
        ),
        refused={"a": AFFINITY, "b": AFFINITY},
    ),
    row(
        "8 NotIn its own label: no first-pod rule",
        ONE_ZONE,
        [],
        pod(labels={"app": "web"}, affinity=needs(term("zone", selector("app notin web")))),
        refused={"a": AFFINITY, "b": AFFINITY},
    ),
    row(
        "9 the match is in a namespace not listed",
        ONE_ZONE,
        [pod("e", namespace="y", node="a", labels={"app": "web"})],
        pod(affinity=needs(term("zone", WEB, namespaces=["x"]))),
        refused={"a": AFFINITY, "b": AFFINITY},
    ),
    row(
        "10 affinity holds in the whole region",
        [
            node("node1", labels={"region": "China"}),
            node("node2", labels={"region": "China", "zone": "az1"}),
            node("node3", labels={"region": "India"}),
        ],
        [pod("e", node="node1", labels={"app": "web"})],
        pod(affinity=needs(term("region", WEB))),
        refused={"node3": AFFINITY},
    ),
    row(
        "11 two anti terms: the wider one suffices",
        TWO_ZONES,
        [pod("e", node="a", labels={"app": "web"})],
        pod(affinity=shuns(term("region", WEB), term("zone", WEB))),
        refused={"a": ANTI, "b": ANTI},
    ),
    row(
        "12 existing pod with an anti term over a key that no node has",
        TWO_ZONES,
        [pod("e", node="a", affinity=shuns(term("nowhere", WEB), term("zone", WEB)))],
        pod(labels={"app": "web"}),
        refused={"a": EXISTING},
    ),
    row(
        "13 both sides object: the incoming pod's reason",
        TWO_ZONES,
        [pod("e", node="a", labels={"app": "web"}, affinity=shuns(term("zone", WEB)))],
        pod(labels={"app": "web"}, affinity=shuns(term("zone", WEB))),
        refused={"a": ANTI},
    ),
    row(
        "14 any one of an existing pod's anti terms suffices",
        TWO_ZONES,
        [
            pod(
                "e",
                node="a",
                affinity=shuns(term("zone", selector("service")), term("zone", selector("security"))),
            )
        ],
        pod(labels={"security": "S1"}),
        refused={"a": EXISTING},
    ),
    row(
        "15 existing anti-affinity means its own namespace",
        TWO_ZONES,
        [pod("e", namespace="other", node="a", affinity=shuns(term("zone", WEB)))],
        pod(labels={"app": "web"}),
        refused={},
    ),
    *(
        row(
            f"16 namespaceSelector team1, match in a namespace of {team}",
            ONE_ZONE,
            [
                namespace("one", labels={"team": "team1"}),
                namespace("two", labels={"team": "team2"}),
                pod("e", namespace=name, node="a", labels={"app": "web"}),
            ],
            pod(affinity=needs(term("zone", WEB, namespace_selector=selector("team in team1")))),
            refused=refused,
        )
        for team, name, refused in (("team1", "one", {}), ("team2", "two", {"a": AFFINITY, "b": AFFINITY}))
    ),
    row(
        "17 namespaceSelector {} means every namespace",
        TWO_ZONES,
        [namespace("other"), pod("e", namespace="other", node="a", labels={"app": "web"})],
        pod(affinity=shuns(term("zone", WEB, namespace_selector={}))),
        refused={"a": ANTI},
    ),
    *(
        row(
            f"18 a bad value in {name}",
            ONE_ZONE,
            [],
            pod(affinity=bad),
            prefilter=(UR, f"parsing pod: {name}: "),
        )
        for name, bad in (
            ("requiredAffinityTerms", needs(term("zone", BAD))),
            ("requiredAntiAffinityTerms", shuns(term("zone", BAD))),
            ("preferredAffinityTerms", affinity(preferred=[(1, term("zone", BAD))])),
            ("preferredAntiAffinityTerms", affinity(anti_preferred=[(1, term("zone", BAD))])),
        )
    ),
    row(
        "18 a bad value in a namespaceSelector",
        ONE_ZONE,
        [],
        pod(affinity=needs(term("zone", WEB, namespace_selector=BAD))),
        prefilter=(UR, "parsing pod: requiredAffinityTerms: "),
    ),
    row(
        "19 one pod matches two terms over one key",
        TWO_ZONES,
        [pod("e", node="a", labels={"app": "x", "tier": "x"})],
        pod(affinity=needs(term("zone", selector("app")), term("zone", selector("tier")))),
        refused={"b": AFFINITY},
    ),
    row(
        "21 own anti term whose namespaceSelector only excludes covers every namespace",
        TWO_ZONES,
        [
            namespace("prod", labels={"env": "prod"}),
            pod("e", namespace="prod", node="a", labels={"app": "web"}),
        ],
        pod(affinity=shuns(term("zone", WEB, namespace_selector=selector("env notin prod")))),
        refused={"a": ANTI},
    ),
    row(
        "22 the same selector on an existing pod leaves prod out",
        TWO_ZONES,
        [
            namespace("prod", labels={"env": "prod"}),
            pod(
                "e",
                node="a",
                affinity=shuns(term("zone", WEB, namespace_selector=selector("env notin prod"))),
            ),
        ],
        pod(namespace="prod", labels={"app": "web"}),
        refused={},
    ),
    row(
        "1.2 an existing pod's excluding namespaceSelector covers an unknown namespace",
        TWO_ZONES,
        [
            pod(
                "e",
                node="a",
                affinity=shuns(term("zone", WEB, namespace_selector=selector("env notin prod"))),
            )
        ],
        pod(namespace="unknown", labels={"app": "web"}),
        refused={"a": EXISTING},
    ),
    row(
        "1.2 labelSelector nil matches no pod",
        TWO_ZONES,
        [pod("e", node="a", labels={"app": "web"})],
        pod(affinity=shuns(term("zone", None))),
        refused={},
    ),
    row(
        "1.2 labelSelector {} matches every pod of the namespace",
        TWO_ZONES,
        [pod("e", node="a"), pod("f", namespace="other", node="b")],
        pod(affinity=shuns(term("zone", {}))),
        refused={"a": ANTI},
    ),
    row(
        "1.2 listed namespaces do not imply the own one",
        TWO_ZONES,
        [pod("e", node="a", labels={"app": "web"}), pod("f", namespace="x", node="b", labels={"app": "web"})],
        pod(affinity=shuns(term("zone", WEB, namespaces=["x"]))),
        refused={"b": ANTI},
    ),
    row(
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
        pod(affinity=shuns(term("zone", WEB, namespaces=["x"], namespace_selector=selector("team=t")))),
        refused={"a": ANTI, "b": ANTI},
    ),
    row(
        "1.2 a broken list of an existing pod is empty, its others stay",
        TWO_ZONES,
        [
            pod(
                "e",
                node="a",
                affinity=affinity(required=[term("zone", BAD)], anti_required=[term("zone", WEB)]),
            ),
            pod("f", node="b", affinity=shuns(term("zone", WEB), term("zone", BAD))),
        ],
        pod(labels={"app": "web"}),
        refused={"a": EXISTING},
    ),
    row(
        "1.3 a pod that is Succeeded, and one on a node that is gone, count nowhere",
        TWO_ZONES,
        [
            pod("e", node="a", labels={"app": "web"}, phase="Succeeded"),
            pod("f", node="gone", labels={"app": "web"}),
        ],
        pod(affinity=shuns(term("zone", WEB))),
        refused={},
    ),
    row(
        "1.4 an empty topology value is a domain",
        [_zone("a", ""), _zone("b", ""), _zone("c", "z1")],
        [pod("e", node="a", labels={"app": "web"})],
        pod(affinity=shuns(term("zone", WEB))),
        refused={"a": ANTI, "b": ANTI},
    ),
    row(
        "1.4 two pods satisfy two terms between them",
        [
            node("n1", labels={"rack": "A", "row": "1"}),
            node("n2", labels={"rack": "B", "row": "2"}),
            node("n3", labels={"rack": "A", "row": "2"}),
            node("n4", labels={"rack": "C", "row": "2"}),
        ],
        [pod("e", node="n1", labels={"app": "web"}), pod("f", node="n2", labels={"app": "web"})],
        pod(affinity=needs(term("rack", WEB), term("row", WEB))),
        refused={"n4": AFFINITY},
    ),
    row(
        "1.4 a match whose node has one of two keys ends the first-pod rule",
        [node("n1", labels={"rack": "A"}), node("n2", labels={"rack": "A", "row": "1"})],
        [pod("e", node="n1", labels={"app": "web"})],
        pod(labels={"app": "web"}, affinity=needs(term("rack", WEB), term("row", WEB))),
        refused={"n1": AFFINITY, "n2": AFFINITY},
    ),
    row(
        "73 all matches sit on nodes without the key: the first-pod rule holds",
        [node("a"), _zone("b", "z1")],
        [pod("e", node="a", labels={"app": "web"})],
        pod(labels={"app": "web"}, affinity=needs(term("zone", WEB))),
        refused={"a": AFFINITY},
    ),
    row(
        "74 a match in one zone closes the others, self-match or not",
        TWO_ZONES,
        [pod("e", node="a", labels={"app": "web"})],
        pod(labels={"app": "web"}, affinity=needs(term("zone", WEB))),
        refused={"b": AFFINITY},
    ),
    row(
        "76 the first of two replicas that shun each other",
        ONE_ZONE,
        [],
        pod(labels={"app": "web"}, affinity=shuns(term("kubernetes.io/hostname", WEB))),
        refused={},
    ),
    row(
        "76 the second of two replicas that shun each other",
        ONE_ZONE,
        [pod("e", node="a", labels={"app": "web"}, affinity=shuns(term("kubernetes.io/hostname", WEB)))],
        pod(labels={"app": "web"}, affinity=shuns(term("kubernetes.io/hostname", WEB))),
        refused={"a": ANTI},
    ),
    row(
        "77 anti-affinity of a terminating pod still holds",
        TWO_ZONES,
        [pod("e", node="a", affinity=shuns(term("zone", WEB)), terminating=True)],
        pod(labels={"app": "web"}),
        refused={"a": EXISTING},
    ),
]
