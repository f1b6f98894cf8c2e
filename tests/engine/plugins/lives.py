"""Random histories of small clusters with few names and labels, so that rules often apply."""

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from tests.support.build import (
    HOSTNAME,
    ZONE,
    Json,
    affinity,
    configuration,
    container,
    namespace,
    node,
    node_affinity,
    node_term,
    owned_by,
    pod,
    replica_set,
    selector,
    service,
    spread,
    term,
    toleration,
)


class Applied(NamedTuple):
    """An object came or changed."""

    object: Json

    def tell(self, *subjects: Any) -> None:
        """Apply the object in each of the clusters."""
        for subject in subjects:
            subject.apply(self.object)


class Deleted(NamedTuple):
    """An object is gone; it may never have been there."""

    kind: str
    namespace: str | None
    name: str

    def tell(self, *subjects: Any) -> None:
        """Delete the object in each of the clusters."""
        for subject in subjects:
            subject.delete(*self)


NODE_NAMES = ("n0", "n1", "n2", "n3", "n4")
NAMESPACES = ("default", "blue", "green")
KEYS = (ZONE, HOSTNAME, "rack")

SELECTORS = (
    None,
    *(
        selector(*texts)
        for texts in ((), ("app=web",), ("app=db",), ("app in web,db",), ("app", "!v"), ("v notin 1",))
    ),
)
NAMESPACE_SELECTORS = (None, None, *(selector(*texts) for texts in ((), ("team=a",), ("team notin a",))))
TAINTS = ("k=v:NoSchedule", "k=w:PreferNoSchedule", "l:NoExecute", "l:PreferNoSchedule")
TOLERATIONS = (
    toleration("k"),
    toleration("k", "Equal", "v", effect="NoSchedule"),
    toleration("l", effect="PreferNoSchedule"),
    toleration(),
)
NODE_TERMS: Final[tuple[Json, ...]] = (
    node_term(f"{ZONE} in a"),
    node_term(f"{ZONE} notin a"),
    node_term("!rack"),
    node_term("size gt 3"),
    node_term(named=["in n1"]),
    node_term(named=["in n2"]),
    node_term("rack", named=["notin n3"]),
    node_term("size in {bad}"),
    {},
)
PARSED_NODE_TERMS = tuple(one for one in NODE_TERMS if one != node_term("size in {bad}"))
PORTS = ("80", "80/UDP", "127.0.0.1:80", "10.0.0.1:80", "81")
IMAGES = ("web:1", "db:latest", "registry:5000/x:latest")
MB = 1024 * 1024


def _some(values: Sequence[Any], most: int = 2) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(values), max_size=most)


def _usually_none(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), st.none(), strategy)


def _labels(**values: Sequence[str]) -> st.SearchStrategy[dict[str, str]]:
    return st.fixed_dictionaries({}, optional={key: st.sampled_from(of) for key, of in values.items()})


POD_LABELS = _labels(app=("web", "db"), v=("1", "2"))
TERMS = st.builds(
    term,
    st.sampled_from(KEYS),
    st.sampled_from(SELECTORS),
    namespaces=st.sampled_from(((), (), ("default",), ("blue", "green"))),
    namespace_selector=st.sampled_from(NAMESPACE_SELECTORS),
)
NODE_PREFERENCES = st.lists(st.tuples(st.integers(1, 9), st.sampled_from(PARSED_NODE_TERMS)), max_size=2)
WEIGHTED = st.tuples(st.integers(1, 100), TERMS)
AFFINITIES = st.builds(
    affinity,
    required=st.lists(TERMS, max_size=2),
    preferred=st.lists(WEIGHTED, max_size=2),
    anti_required=st.lists(TERMS, max_size=2),
    anti_preferred=st.lists(WEIGHTED, max_size=1),
    node_required=_usually_none(_some(NODE_TERMS)),
    node_preferred=_usually_none(NODE_PREFERENCES),
)


@st.composite
def annotations(draw: st.DrawFn) -> dict[str, str]:
    """Draw our annotations: more terms, limits per domain, enforced rules, label keys, another mode."""
    which = st.sampled_from(("Ignored", "Required")).map(
        lambda word: f"requiredDuringScheduling{word}DuringExecution"
    )
    made: Json = {}
    for side, limits in (("podAffinity", st.just({})), ("podAntiAffinity", LIMITS)):
        for one in draw(st.lists(TERMS, max_size=2 if side == "podAntiAffinity" else 1)):
            keys = draw(LABEL_KEYS) if "labelSelector" in one else {}
            made.setdefault(side, {}).setdefault(draw(which), []).append({**one, **keys, **draw(limits)})
    if (weighted := draw(_usually_none(_WEIGHTED_PREFERENCES))) is not None:
        made.setdefault("podAntiAffinity", {})["preferredDuringSchedulingIgnoredDuringExecution"] = [weighted]
    nodes = node_affinity(
        required=draw(_usually_none(st.lists(st.sampled_from(PARSED_NODE_TERMS), min_size=1, max_size=2))),
        preferred=draw(_usually_none(NODE_PREFERENCES)),
    )
    if nodes:
        made["nodeAffinity"] = nodes
    name = "affinity-scheduler.io/affinity"
    return {name: json.dumps(made), **draw(st.sampled_from(({}, {}, {f"{name}-mode": "replace"})))}


LIMITS: st.SearchStrategy[Json] = st.sampled_from(
    (
        {},
        {"maxPodsPerDomain": 1},
        {"maxPodsPerDomain": 2},
        {"maxPodsPerDomain": 3},
        {"maxPodsPerDomain": "40%"},
        {"domainWeights": {"a": 7, "b": 3, "r1": 1}},
    )
)
_WEIGHTED_PREFERENCES = st.builds(
    lambda weight, one: {
        "weight": weight,
        "podAffinityTerm": {**one, "domainWeights": {"a": 2, "b": 1, "r2": 5, "gone": 9}},
    },
    st.sampled_from((1, 100)),
    TERMS,
)
LABEL_KEYS: st.SearchStrategy[Json] = st.sampled_from(
    ({}, {}, {"matchLabelKeys": ["v"]}, {"mismatchLabelKeys": ["v", "absent"]})
)
SPREADS = st.builds(
    spread,
    st.sampled_from(KEYS),
    st.sampled_from(SELECTORS),
    max_skew=st.integers(1, 3),
    soft=st.booleans(),
    min_domains=_usually_none(st.integers(1, 3)),
    affinity_policy=st.sampled_from((None, "Ignore", "Honor")),
    taints_policy=st.sampled_from((None, "Ignore", "Honor")),
    match_label_keys=st.sampled_from(((), ("v",))),
)
CONTAINERS = st.builds(
    container,
    image=st.sampled_from(("web:1", "db", "registry:5000/x", "other")),
    requests=_labels(
        cpu=("100m", "1", "3"),
        memory=("64Mi", "2Gi"),
        **{"ephemeral-storage": ("1Gi",), "example.com/gpu": ("0", "1")},
    ),
    host_ports=_some(PORTS, 1),
)


#: Init containers, plain or staying on as sidecars; overhead; requests of the pod as a whole.
MORE_OF_A_SPEC = st.builds(
    lambda init, restarts, more: {"initContainers": [{**init, "restartPolicy": restarts}], **more},
    CONTAINERS,
    st.sampled_from(("Always", None)),
    st.sampled_from(({}, {"overhead": {"cpu": "250m"}}, {"resources": {"requests": {"cpu": "2500m"}}})),
)


@st.composite
def pods(draw: st.DrawFn, *, placed: bool) -> Json:
    """Draw a pod. A placed one may be on an unknown node, and may have the name of an older one."""
    name = draw(st.sampled_from(("p0", "p1", "p2", "p3", "p4", "p5"))) if placed else "incoming"
    space = draw(st.sampled_from(NAMESPACES))
    made = pod(
        name,
        namespace=space,
        uid=f"{space}-{name}-{draw(st.integers(1, 2))}",
        labels=draw(POD_LABELS),
        node=draw(st.sampled_from((*NODE_NAMES, *NODE_NAMES, "gone", None))) if placed else None,
        affinity=draw(_usually_none(AFFINITIES)),
        spread=draw(st.one_of(st.just([]), st.lists(SPREADS, max_size=2))),
        node_selector=draw(_usually_none(_labels(**{ZONE: ("a", "b")}))),
        tolerations=draw(_some(TOLERATIONS)),
        containers=draw(st.lists(CONTAINERS, min_size=1, max_size=2)),
        terminating=placed and draw(st.integers(0, 4)) == 4,
        phase=draw(st.sampled_from(("Running", "Running", "Pending", "Succeeded"))) if placed else "Pending",
        owner=draw(_usually_none(st.just(owned_by("ReplicaSet", "rs")))),
        spec=draw(_usually_none(MORE_OF_A_SPEC)),
    )
    own = draw(_usually_none(annotations()))
    if own is not None:
        made["metadata"]["annotations"] = own
    return made


NODES = st.builds(
    node,
    st.sampled_from(NODE_NAMES),
    labels=_labels(**{ZONE: ("a", "b", ""), "rack": ("r1", "r2"), "size": ("2", "05", "big")}),
    hostname=st.sampled_from(("", "", "", "shared", None)),
    allocatable=_labels(
        cpu=("2", "4"), memory=("1Gi", "4Gi"), pods=("1", "3"), **{"example.com/gpu": ("1", "2")}
    ),
    taints=st.one_of(st.just([]), _some(TAINTS)),
    unschedulable=st.integers(0, 9).map(lambda number: number == 9),
    images=st.dictionaries(
        st.sampled_from(IMAGES), st.sampled_from((30 * MB, 700 * MB, 3000 * MB)), max_size=2
    ),
)
SPACES = st.builds(namespace, st.sampled_from(NAMESPACES), labels=_labels(team=("a", "b")))
OWNERS = st.one_of(
    st.builds(service, st.just("svc"), _labels(app=("web",)), namespace=st.sampled_from(NAMESPACES)),
    st.builds(
        replica_set, st.just("rs"), st.sampled_from(SELECTORS[1:]), namespace=st.sampled_from(NAMESPACES)
    ),
)
CHANGES: st.SearchStrategy[Applied | Deleted] = st.one_of(
    *[st.builds(Applied, pods(placed=True))] * 4,
    *[st.builds(Applied, NODES)] * 2,
    st.builds(Applied, SPACES),
    st.builds(Applied, OWNERS),
    st.builds(
        Deleted, st.just("Pod"), st.sampled_from(NAMESPACES), st.sampled_from(("p0", "p1", "p2", "p3"))
    ),
    st.builds(Deleted, st.just("Node"), st.none(), st.sampled_from(NODE_NAMES)),
    st.builds(Deleted, st.just("Namespace"), st.none(), st.sampled_from(NAMESPACES)),
    st.builds(Deleted, st.just("Service"), st.sampled_from(NAMESPACES), st.just("svc")),
)
#: What a life begins with, so that decisions have nodes to choose from.
BEGINNINGS = st.lists(
    st.one_of(st.builds(Applied, NODES), st.builds(Applied, NODES), st.builds(Applied, pods(placed=True))),
    min_size=3,
    max_size=12,
)


def _fit(strategy: Json, **more: object) -> Json:
    return configuration({"NodeResourcesFit": {"scoringStrategy": strategy, **more}})


_GPU_TOO: Final = [
    {"name": "cpu", "weight": 2},
    {"name": "memory", "weight": 1},
    {"name": "example.com/gpu", "weight": 5},
]
CONFIGURATIONS: Final[tuple[Json | None, ...]] = (
    None,
    configuration(filters_off=["NodeAffinity"]),
    _fit({"type": "MostAllocated", "resources": _GPU_TOO}, ignoredResources=["example.com/gpu"]),
    _fit({"type": "LeastAllocated", "resources": _GPU_TOO}, ignoredResourceGroups=["example.com"]),
    _fit(
        {
            "type": "RequestedToCapacityRatio",
            "resources": _GPU_TOO,
            "requestedToCapacityRatio": {
                "shape": [
                    {"utilization": 0, "score": 2},
                    {"utilization": 40, "score": 10},
                    {"utilization": 100, "score": 0},
                ]
            },
        }
    ),
    configuration(
        {
            "NodeAffinity": {
                "addedAffinity": node_affinity(
                    required=[node_term("!size"), node_term("size in 2")],
                    preferred=[(3, node_term(f"{ZONE} in b"))],
                )
            },
            "NodeResourcesBalancedAllocation": {
                "resources": [{"name": one["name"], "weight": 1} for one in _GPU_TOO]
            },
        }
    ),
    configuration({"InterPodAffinity": {"exemptNamespaces": ["blue"]}}),
    configuration(
        {"InterPodAffinity": {"hardPodAffinityWeight": 40, "ignorePreferredTermsOfExistingPods": True}}
    ),
    configuration(
        {
            "PodTopologySpread": {
                "defaultingType": "List",
                "defaultConstraints": [
                    {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway"},
                    {"maxSkew": 1, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"},
                ],
            }
        }
    ),
)
