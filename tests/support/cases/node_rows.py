"""Edge cases of NodeUnschedulable, NodeName, TaintToleration, NodeAffinity and NodePorts: rules of nodes, §8-§12."""

from collections.abc import Sequence
from typing import Final, Unpack

from tests.support.build import (
    Json,
    affinity,
    configuration,
    container,
    node,
    node_affinity,
    node_term,
    pod,
    toleration,
)
from tests.support.cases.row import UR, Expected, Row, U

CORDONED: Final = (UR, "node(s) were unschedulable")
OTHER_NAME: Final = (UR, "node(s) didn't match the requested node name")
TAINTED: Final = (UR, "node(s) had untolerated taint(s)")
MISMATCH: Final = (UR, "node(s) didn't match Pod's node affinity/selector")
ENFORCED: Final = (UR, "node(s) didn't match scheduler-enforced node affinity")
PORT_TAKEN: Final = (U, "node(s) didn't have free ports for the requested pod ports")

CORDON_KEY: Final = "node.kubernetes.io/unschedulable"

UNSCHEDULABLE_ROWS: Final = [
    Row(
        f"8 cordoned node, {word}",
        "NodeUnschedulable",
        [node("a"), node("b", unschedulable=True)],
        pod(tolerations=tolerations),
        refused=refused,
    )
    for word, tolerations, refused in (
        ("no toleration", [], {"b": CORDONED}),
        ("tolerated for NoSchedule", [toleration(CORDON_KEY, effect="NoSchedule")], {}),
        ("tolerated for any effect", [toleration(CORDON_KEY)], {}),
        ("tolerated for NoExecute", [toleration(CORDON_KEY, effect="NoExecute")], {"b": CORDONED}),
        ("everything tolerated", [toleration()], {}),
    )
]

NAME_ROWS: Final = [
    Row("9 no node named", "NodeName", [node("a"), node("b")], pod(), refused={}),
    Row("9 a node named", "NodeName", [node("a"), node("b")], pod(node="a"), refused={"b": OTHER_NAME}),
]


def _tainted(id_: str, taints: Sequence[str], *tolerations: Json, refused: bool) -> Row:
    nodes = [node("a", taints=taints), node("b")]
    return Row(
        id_, "TaintToleration", nodes, pod(tolerations=tolerations), refused={"a": TAINTED} if refused else {}
    )


TAINT_FILTER_ROWS: Final = [
    _tainted("10 no toleration, NoSchedule", ["k=v:NoSchedule"], refused=True),
    _tainted("10 no toleration, NoExecute", ["k=v:NoExecute"], refused=True),
    _tainted("10 only PreferNoSchedule", ["k=v:PreferNoSchedule"], refused=False),
    _tainted("10 no operator means Equal", ["k=v:NoSchedule"], {"key": "k", "value": "v"}, refused=False),
    _tainted("10 another value", ["k=v:NoSchedule"], toleration("k", "Equal", "w"), refused=True),
    _tainted("10 Equal, both values empty", ["k:NoSchedule"], toleration("k", "Equal"), refused=False),
    _tainted("10 Exists takes any value", ["k=v:NoSchedule"], toleration("k"), refused=False),
    _tainted("10 an unknown operator", ["k=v:NoSchedule"], toleration("k", "Almost", "v"), refused=True),
    _tainted("10 Gt with its gate off", ["k=950:NoSchedule"], toleration("k", "Gt", "750"), refused=True),
]

TAINT_SCORE_ROWS: Final = [
    Row(
        "10 raw 0, 1, 2",
        "TaintToleration",
        [
            node("a"),
            node("b", taints=["k=v:PreferNoSchedule"]),
            node("c", taints=["k=v:PreferNoSchedule", "l=v:PreferNoSchedule"]),
        ],
        pod(),
        scores={"a": 100, "b": 50, "c": 0},
    ),
    Row("10 no taints at all", "TaintToleration", [node("a"), node("b")], pod(), scores={"a": 100, "b": 100}),
    Row(
        "10 a toleration for every effect does",
        "TaintToleration",
        [node("a", taints=["k=v:PreferNoSchedule"]), node("b", taints=["l=v:PreferNoSchedule"])],
        pod(tolerations=[toleration("k")]),
        scores={"a": 100, "b": 0},
    ),
]


def _needs(id_: str, *terms: Json, **expected: Unpack[Expected]) -> Row:
    """Return a row: nodes `a` (tier=web, size=0206) and `b` (neither label), and a pod with required node affinity."""
    nodes = [node("a", labels={"tier": "web", "size": "0206"}), node("b")]
    return Row(id_, "NodeAffinity", nodes, pod(affinity=affinity(node_required=terms)), **expected)


ONLY_A: Final = {"b": MISMATCH}
ONLY_B: Final = {"a": MISMATCH}
NONE: Final = {"a": MISMATCH, "b": MISMATCH}
WEB: Final = node_term("tier in web")

NODE_AFFINITY_FILTER_ROWS: Final = [
    _needs("11 In", WEB, refused=ONLY_A),
    _needs("11 NotIn matches where the label is absent", node_term("tier notin web"), refused=ONLY_B),
    _needs("11 Exists", node_term("tier"), refused=ONLY_A),
    _needs("11 DoesNotExist", node_term("!tier"), refused=ONLY_B),
    _needs("11 Gt, leading zeros allowed", node_term("size gt 0204"), refused=ONLY_A),
    _needs("11 Gt of an equal number", node_term("size gt 206"), refused=NONE),
    _needs("11 Lt", node_term("size lt 207"), refused=ONLY_A),
    _needs("11 a sign makes it no label value", node_term("size lt +207"), refused=NONE),
    _needs("11 Lt of a label that is no number", node_term("tier lt 207"), refused=NONE),
    _needs("11 terms are ORed", node_term("tier in db"), WEB, refused=ONLY_A),
    _needs("11 expressions are ANDed", node_term("tier in web", "!size"), refused=NONE),
    _needs("11 no terms", refused=NONE),
    _needs("11 an empty term", node_term(), refused=NONE),
    _needs("11 a term with an empty list", {"matchExpressions": []}, refused=NONE),
    _needs("11 a value that is no label value", node_term("tier notin invalid-value:___@#$%^"), refused=NONE),
    _needs("11 In without values", {"matchExpressions": [{"key": "tier", "operator": "In"}]}, refused=NONE),
    _needs("11 a term that does not parse leaves the others", node_term("tier gt x"), WEB, refused=ONLY_A),
    _needs(
        "11 one term names two nodes at once",
        node_term(named=["in a", "in b"]),
        prefilter=(UR, "pod affinity terms conflict"),
    ),
    _needs(
        "11 that term or one of labels: no narrowing", node_term(named=["in a", "in b"]), WEB, refused=ONLY_A
    ),
    _needs(
        "11 name and label in one term", node_term("!tier", named=["in a"]), refused=NONE, only_nodes=["a"]
    ),
    _needs("11 a name NotIn does not narrow", node_term(named=["notin a"]), refused=ONLY_B),
    *(
        Row(
            f"11 nodeSelector {word}",
            "NodeAffinity",
            [node("a", labels={"tier": "web", "more": "x"}), node("b")],
            pod(node_selector=wanted, affinity=affinity(node_required=[WEB])),
            refused=refused,
        )
        for word, wanted, refused in (
            ("and affinity match", {"tier": "web"}, ONLY_A),
            ("does not match, affinity does", {"tier": "db"}, NONE),
            ("names a missing key", {"absent": ""}, NONE),
        )
    ),
    Row(
        "11 addedAffinity comes before the pod's own",
        "NodeAffinity",
        [node("a", labels={"tier": "web"}), node("b", labels={"os": "linux"}), node("c")],
        pod(node_selector={"tier": "web"}),
        config=configuration(
            {"NodeAffinity": {"addedAffinity": node_affinity(required=[node_term("os in linux")])}}
        ),
        refused={"a": ENFORCED, "b": MISMATCH, "c": ENFORCED},
    ),
]


def _likes(id_: str, *preferred: tuple[int, Json], **expected: Unpack[Expected]) -> Row:
    nodes = [
        node("a", labels={"x": "1"}),
        node("b", labels={"x": "1", "y": "1", "z": "1"}),
        node("c", labels={"y": "1"}),
    ]
    return Row(id_, "NodeAffinity", nodes, pod(affinity=affinity(node_preferred=preferred)), **expected)


NODE_AFFINITY_SCORE_ROWS: Final = [
    _likes("11 nothing preferred matches", (2, node_term("absent")), scores={"a": 0, "b": 0, "c": 0}),
    _likes("11 an empty list of preferences is no skip", scores={"a": 0, "b": 0, "c": 0}),
    _likes(
        "11 weight 0 and empty preferences are dropped unread",
        (0, node_term("x gt y")),
        (5, node_term()),
        scores={"a": 0, "b": 0, "c": 0},
    ),
    _likes(
        "11 a preference that does not parse",
        (1, node_term("x gt y")),
        error='running PreScore plugin "NodeAffinity": ',
    ),
    Row("11 no preferences", "NodeAffinity", [node("a"), node("b")], pod(), scores="skipped"),
    Row(
        "11 preferences added by the profile",
        "NodeAffinity",
        [node("a", labels={"os": "linux"}), node("b")],
        pod(),
        config=configuration(
            {"NodeAffinity": {"addedAffinity": node_affinity(preferred=[(1, node_term("os in linux"))])}}
        ),
        scores={"a": 100, "b": 0},
    ),
]


def _ports(id_: str, wanted: Sequence[str], used: Sequence[str], *, refused: bool) -> Row:
    return Row(
        id_,
        "NodePorts",
        [node("a"), node("b"), pod("e", node="a", containers=[container(host_ports=used)])],
        pod(containers=[container(host_ports=wanted)]),
        refused={"a": PORT_TAKEN} if refused else {},
    )


def _init_port(id_: str, restart_policy: str | None, *, refused: bool) -> Row:
    init = container("i", host_ports=["8080"], restart_policy=restart_policy)
    return Row(
        id_,
        "NodePorts",
        [node("a"), node("b"), pod("e", node="a", containers=[container(host_ports=["8080"])])],
        pod(spec={"initContainers": [init]}),
        refused={"a": PORT_TAKEN} if refused else {},
    )


PORT_ROWS: Final = [
    _ports("12 another port", ["127.0.0.1:8080/UDP"], ["127.0.0.1:9090/UDP"], refused=False),
    _ports("12 another protocol", ["127.0.0.1:8080/UDP"], ["127.0.0.1:8080/TCP"], refused=False),
    _ports("12 another address", ["127.0.0.1:8080/UDP"], ["127.0.0.2:8080/UDP"], refused=False),
    _ports("12 the same", ["127.0.0.1:8080/UDP"], ["127.0.0.1:8080/UDP"], refused=True),
    _ports("12 all addresses against one", ["0.0.0.0:8001"], ["127.0.0.1:8001"], refused=True),
    _ports("12 one address against all", ["127.0.0.1:8001"], ["0.0.0.0:8001"], refused=True),
    _ports("12 no address means all", ["8001"], ["127.0.0.1:8001"], refused=True),
    _ports("12 :: is no wildcard", [":::8001"], ["127.0.0.1:8001"], refused=False),
    _ports("12 the last of several", ["8000", "8001", "8002"], ["8002"], refused=True),
    _init_port("12 a plain init container's port does not count", None, refused=False),
    _init_port("12 a sidecar's port does", "Always", refused=True),
]

ROWS: Final = [
    *UNSCHEDULABLE_ROWS,
    *NAME_ROWS,
    *TAINT_FILTER_ROWS,
    *TAINT_SCORE_ROWS,
    *NODE_AFFINITY_FILTER_ROWS,
    *NODE_AFFINITY_SCORE_ROWS,
    *PORT_ROWS,
]
