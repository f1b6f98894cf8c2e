"""Edge cases of InterPodAffinity's score: rows 23-32 and 78 of the rules, and sentences of their sections."""

from typing import Final

from tests.support.build import Json, affinity, configuration, node, pod, selector, term
from tests.support.cases.affinity_filter_rows import BAD, NAME, ONE_ZONE, WEB, needs, row
from tests.support.cases.row import UR


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


ROWS: Final = [
    row(
        "23 a match on a node without the key",
        THREE,
        [_web("e", "node1"), _web("f", "node3")],
        pod(affinity=_prefers(5, term("region", WEB))),
        scores={"node1": 100, "node2": 0, "node3": 0},
    ),
    row(
        "24 one pod matches both terms, one only the lighter",
        THREE,
        [_web("e", "node1"), _web("f", "node2", tier="x")],
        pod(affinity=affinity(preferred=[(8, term("region", selector("tier"))), (2, term("region", WEB))])),
        scores={"node1": 20, "node2": 100, "node3": 0},
    ),
    row(
        "25 required affinity of existing pods counts in reverse",
        THREE,
        [
            pod(
                f"e{i}",
                node=f"node{i}",
                affinity=needs(term("region", WEB), term("region", selector("tier"))),
            )
            for i in (1, 2)
        ],
        pod(labels={"app": "web", "tier": "x"}),
        scores={"node1": 100, "node2": 100, "node3": 0},
    ),
    row(
        "26 hardPodAffinityWeight 0 and nothing else",
        TWO,
        [pod("e", node="node1", affinity=needs(term("region", WEB)))],
        pod(labels={"app": "web"}),
        config=_hard_weight(0),
        scores="skipped",
    ),
    row(
        "27 preferred anti-affinity of an existing pod",
        THREE,
        [pod("e", node="node1", affinity=_dislikes(5, term("region", WEB)))],
        pod(labels={"app": "web"}),
        scores={"node1": 0, "node2": 100, "node3": 100},
    ),
    row(
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
    row(
        "29 the same on every node is nothing",
        ONE_ZONE,
        [_web("e", "a")],
        pod(affinity=_prefers(8, term("zone", WEB))),
        scores={"a": 0, "b": 0},
    ),
    row(
        "30 preferred terms of existing pods ignored",
        TWO,
        [pod("e", node="node2", affinity=_prefers(5, term("region", WEB)))],
        pod(labels={"app": "web"}),
        config=_ignoring(),
        scores="skipped",
    ),
    row(
        "30 preferred terms of existing pods not ignored",
        TWO,
        [pod("e", node="node2", affinity=_prefers(5, term("region", WEB)))],
        pod(labels={"app": "web"}),
        scores={"node1": 0, "node2": 100},
    ),
    *(
        row(
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
    row(
        "32 a bad value in a preferred term is caught before scoring",
        TWO,
        [],
        pod(affinity=_prefers(1, term("region", BAD))),
        prefilter=(UR, "parsing pod: preferredAffinityTerms: "),
    ),
    row(
        "78 only a required affinity, existing pods without any",
        ONE_ZONE,
        [_web("e", "a")],
        pod(affinity=needs(term("zone", WEB))),
        scores="skipped",
    ),
    row(
        "1.6 terms of existing pods count although ignored, if the pod prefers something",
        TWO,
        [pod("e", node="node2", affinity=_prefers(5, term("region", WEB)))],
        pod(labels={"app": "web"}, affinity=_prefers(1, term("region", selector("app=nobody")))),
        config=_ignoring(),
        scores={"node1": 0, "node2": 100},
    ),
    row(
        "1.6 weights that cancel out are no skip",
        TWO,
        [_web("e", "node1")],
        pod(
            affinity=affinity(preferred=[(5, term("region", WEB))], anti_preferred=[(5, term("region", WEB))])
        ),
        scores={"node1": 0, "node2": 0},
    ),
    row(
        "1.6 hardPodAffinityWeight counts each required term alone",
        THREE,
        [
            pod(
                "e", node="node1", affinity=needs(term("region", WEB), term("region", selector("app=other")))
            ),
            pod("f", node="node2", affinity=_prefers(50, term("region", WEB))),
        ],
        pod(labels={"app": "web"}),
        config=_hard_weight(25),
        scores={"node1": 50, "node2": 100, "node3": 0},
    ),
    row(
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
    row(
        "1.8 a terminating pod scores like any other",
        TWO,
        [pod("e", node="node2", labels={"app": "web"}, terminating=True)],
        pod(affinity=_prefers(5, term("region", WEB))),
        scores={"node1": 0, "node2": 100},
    ),
]
