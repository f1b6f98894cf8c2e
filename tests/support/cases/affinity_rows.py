"""
Edge cases of InterPodAffinity that the recordings have not, by the numbers of the rules' rows and sections.

The recordings have the other rows, and the reference is compared with the plugin on random clusters.
"""

from typing import Final, Unpack

from tests.support.build import Json, affinity, configuration, node, pod, selector, term
from tests.support.cases.row import UR, Expected, Row, U

NAME: Final = "InterPodAffinity"

AFFINITY: Final = (UR, "node(s) didn't match pod affinity rules")
EXISTING: Final = (U, "node(s) didn't satisfy existing pods anti-affinity rules")

WEB: Final = selector("app=web")
BAD: Final = selector("app in {{bad}}")
IGNORING: Final = configuration({NAME: {"ignorePreferredTermsOfExistingPods": True}})


def _row(
    id_: str, nodes: list[Json], others: list[Json], incoming: Json, **expected: Unpack[Expected]
) -> Row:
    return Row(id_, NAME, [*nodes, *others], incoming, **expected)


def _needs(*terms: Json) -> Json:
    return affinity(required=terms)


def _shuns(*terms: Json) -> Json:
    return affinity(anti_required=terms)


def _prefers(weight: int, wanted: Json) -> Json:
    return affinity(preferred=[(weight, wanted)])


ONE_ZONE: Final = [node(name, labels={"zone": "z1"}) for name in ("a", "b")]
TWO_ZONES: Final = [node(name, labels={"zone": zone}) for name, zone in (("a", "z1"), ("b", "z2"))]
TWO_REGIONS: Final = [node(name, labels={"region": region}) for name, region in (("a", "r1"), ("b", "r2"))]

ROWS: Final = [
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
        "1.4 a match whose node has one of two keys ends the first-pod rule",
        [node("n1", labels={"rack": "A"}), node("n2", labels={"rack": "A", "row": "1"})],
        [pod("e", node="n1", labels={"app": "web"})],
        pod(labels={"app": "web"}, affinity=_needs(term("rack", WEB), term("row", WEB))),
        refused={"n1": AFFINITY, "n2": AFFINITY},
    ),
    _row(
        "30 preferred terms of existing pods ignored",
        TWO_REGIONS,
        [pod("e", node="b", affinity=_prefers(5, term("region", WEB)))],
        pod(labels={"app": "web"}),
        config=IGNORING,
        scores="skipped",
    ),
    _row(
        "32 a bad value in a preferred term is caught before scoring",
        TWO_REGIONS,
        [],
        pod(affinity=_prefers(1, term("region", BAD))),
        prefilter=(UR, "parsing pod: preferredAffinityTerms: "),
    ),
    _row(
        "1.6 terms of existing pods count although ignored, if the pod prefers something",
        TWO_REGIONS,
        [pod("e", node="b", affinity=_prefers(5, term("region", WEB)))],
        pod(labels={"app": "web"}, affinity=_prefers(1, term("region", selector("app=nobody")))),
        config=IGNORING,
        scores={"a": 0, "b": 100},
    ),
    _row(
        "1.6 weights that cancel out are no skip",
        TWO_REGIONS,
        [pod("e", node="a", labels={"app": "web"})],
        pod(
            affinity=affinity(preferred=[(5, term("region", WEB))], anti_preferred=[(5, term("region", WEB))])
        ),
        scores={"a": 0, "b": 0},
    ),
]
