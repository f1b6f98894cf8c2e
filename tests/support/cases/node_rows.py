"""Edge cases of the plugins about one node that the recordings have not: rules of nodes, §8-§15."""

from collections.abc import Mapping
from typing import Final

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
from tests.support.cases.row import UR, Refusal, Row, U

MISMATCH: Final = (UR, "node(s) didn't match Pod's node affinity/selector")
ENFORCED: Final = (UR, "node(s) didn't match scheduler-enforced node affinity")
PORT_TAKEN: Final = (U, "node(s) didn't have free ports for the requested pod ports")


def _needs(id_: str, term: Json, *, refused: str) -> Row:
    """Return a row: nodes `a` (tier=web, size=0206) and `b` (neither label), and a pod with required node affinity."""
    nodes = [node("a", labels={"tier": "web", "size": "0206"}), node("b")]
    incoming = pod(affinity=affinity(node_required=[term]))
    return Row(id_, "NodeAffinity", nodes, incoming, refused=dict.fromkeys(refused, MISMATCH))


def _adding(**added: object) -> Json:
    """Return a configuration whose profile adds node affinity."""
    return configuration({"NodeAffinity": {"addedAffinity": node_affinity(**added)}})  # type: ignore[arg-type]


SELECTION_ROWS: Final = [
    Row(
        "9 a node named",
        "NodeName",
        [node("a"), node("b")],
        pod(node="a"),
        refused={"b": (UR, "node(s) didn't match the requested node name")},
    ),
    Row(
        "10 Equal, both values empty",
        "TaintToleration",
        [node("a", taints=["k:NoSchedule"])],
        pod(tolerations=[toleration("k", "Equal")]),
        refused={},
    ),
    Row(
        "10 Gt with its gate off",
        "TaintToleration",
        [node("a", taints=["k=950:NoSchedule"])],
        pod(tolerations=[toleration("k", "Gt", "750")]),
        refused={"a": (UR, "node(s) had untolerated taint(s)")},
    ),
    _needs("11 Gt, leading zeros allowed", node_term("size gt 0204"), refused="b"),
    _needs("11 a sign makes it no label value", node_term("size lt +207"), refused="ab"),
    _needs("11 an empty term", node_term(), refused="ab"),
    _needs("11 a term with an empty list", {"matchExpressions": []}, refused="ab"),
    _needs("11 a value that is no label value", node_term("tier notin invalid-value:___@#$%^"), refused="ab"),
    _needs("11 In without values", {"matchExpressions": [{"key": "tier", "operator": "In"}]}, refused="ab"),
    Row(
        "11 one term names two nodes at once",
        "NodeAffinity",
        [node("a"), node("b")],
        pod(affinity=affinity(node_required=[node_term(named=["in a", "in b"])])),
        prefilter=(UR, "pod affinity terms conflict"),
    ),
    Row(
        "11 addedAffinity comes before the pod's own",
        "NodeAffinity",
        [node("a", labels={"tier": "web"}), node("b", labels={"os": "linux"}), node("c")],
        pod(node_selector={"tier": "web"}),
        config=_adding(required=[node_term("os in linux")]),
        refused={"a": ENFORCED, "b": MISMATCH, "c": ENFORCED},
    ),
    Row(
        "11 weight 0 and empty preferences are dropped unread",
        "NodeAffinity",
        [node("a", labels={"x": "1"}), node("b")],
        pod(affinity=affinity(node_preferred=[(0, node_term("x gt y")), (5, node_term())])),
        scores={"a": 0, "b": 0},
    ),
    Row(
        "11 a preference that does not parse",
        "NodeAffinity",
        [node("a", labels={"x": "1"}), node("b")],
        pod(affinity=affinity(node_preferred=[(1, node_term("x gt y"))])),
        error='running PreScore plugin "NodeAffinity": ',
    ),
    Row(
        "11 preferences added by the profile",
        "NodeAffinity",
        [node("a", labels={"os": "linux"}), node("b")],
        pod(),
        config=_adding(preferred=[(1, node_term("os in linux"))]),
        scores={"a": 100, "b": 0},
    ),
]

PORT_ROWS: Final = [
    Row(
        f"12 an init container's port, {restart_policy}",
        "NodePorts",
        [node("a"), pod("e", node="a", containers=[container(host_ports=["8080"])])],
        pod(spec={"initContainers": [container("i", host_ports=["8080"], restart_policy=restart_policy)]}),
        refused=refused,
    )
    for restart_policy, refused in ((None, dict[str, Refusal]()), ("Always", {"a": PORT_TAKEN}))
]

EXT: Final = "example.com/a"


def _ignoring(id_: str, name: str, *groups: str, refused: bool) -> Row:
    """Return a row of a resource that no node has, while its group may be ignored."""
    return Row(
        id_,
        "NodeResourcesFit",
        [node("n")],
        pod(containers=[container(requests={name: "1"})]),
        configuration({"NodeResourcesFit": {"ignoredResourceGroups": list(groups)}}),
        refused={"n": (UR, f"Insufficient {name}")} if refused else {},
    )


def _balance(id_: str, score: int, *, used: Json, asked: Json, room: Json, config: Json | None = None) -> Row:
    user = pod("user", node="n", containers=[container(requests=used)])
    return Row(
        id_,
        "NodeResourcesBalancedAllocation",
        [node("n", allocatable=room), user],
        pod(containers=[container(requests=asked)]),
        config,
        scores={"n": score},
    )


RESOURCE_ROWS: Final = [
    _ignoring("13 a group that is ignored", EXT, "example.com", refused=False),
    _ignoring("13 a group is all that is before the slash", EXT, "example", "com", refused=True),
    _ignoring("13 a kubernetes.io name cannot be ignored", "kubernetes.io/x", "kubernetes.io", refused=True),
    _balance(
        "14 a resource of which the node has none is left out",
        75,
        used={"cpu": "50"},
        asked={"cpu": "25"},
        room={"cpu": "100", "memory": "0"},
    ),
    _balance(
        "14 a third resource of which the node has one: 0, 0, 0 % -> 50, 50, 100 %",
        63,
        used={"cpu": "0", "memory": "0"},
        asked={"cpu": "50", "memory": "50", EXT: "1"},
        room={"cpu": "100", "memory": "100", EXT: "1"},
        config=configuration(
            {
                "NodeResourcesBalancedAllocation": {
                    "resources": [{"name": name, "weight": 1} for name in ("cpu", "memory", EXT)]
                }
            }
        ),
    ),
]

MB: Final = 1024 * 1024


def _images(id_: str, score: int, held: Mapping[str, int], image: str, **spec: object) -> Row:
    """Return a row of nodes `a` and `b`; `held` has the MB of each image on node a."""
    nodes = [node("a", images={name: size * MB for name, size in held.items()}), node("b")]
    incoming = pod(containers=[container(image=image)], spec=dict(spec))
    return Row(id_, "ImageLocality", nodes, incoming, scores={"a": score, "b": 0})


IMAGE_ROWS: Final = [
    _images("15 4000 on one of two", 100, {"x:1": 4000}, "x:1"),
    _images(
        "15 an image volume counts, but not as a container",
        12,
        {"v:1": 300},
        "x:1",
        volumes=[{"name": "v", "image": {"reference": "v:1"}}],
    ),
    _images("15 no tag means latest, a port is no tag", 23, {"repo:5000/x:latest": 500}, "repo:5000/x"),
]

ROWS: Final = [*SELECTION_ROWS, *PORT_ROWS, *RESOURCE_ROWS, *IMAGE_ROWS]
