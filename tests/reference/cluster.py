"""
The cluster as a bag of API objects, and the order in which a decision on a pod asks the plugins.

Source: pkg/scheduler/schedule_one.go and pkg/scheduler/framework/{types.go,runtime} (kubernetes 1.36).
Left out: nominated pods, dynamic resources, extenders, sampling, and other than default weights.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tests.reference import (
    balanced_allocation,
    image_locality,
    inter_pod_affinity,
    node_affinity,
    node_name,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from tests.reference.annotated import in_fields
from tests.reference.preemption import preemption
from tests.reference.question import (
    UNRESOLVABLE,
    CycleError,
    Image,
    Object,
    Question,
    Verdict,
    labels_of,
    namespace_of,
)

PreFilter = Callable[[Question], Verdict | frozenset[str] | None]
Filter = Callable[[Question], dict[str, Verdict]]
Score = Callable[[Question, list[str]], dict[str, int] | None]

#: In the order of the default profile; only NodeAffinity's answer may be a set of node names.
PREFILTERS: Mapping[str, PreFilter] = {
    node_affinity.NAME: node_affinity.prefilter,
    volume_restrictions.NAME: volume_restrictions.prefilter,
    volume_binding.NAME: volume_binding.prefilter,
    volume_zone.NAME: volume_zone.prefilter,
    pod_topology_spread.NAME: pod_topology_spread.prefilter,
    inter_pod_affinity.NAME: inter_pod_affinity.prefilter,
}

#: In the order of the default profile, which decides whose reason a node is reported with.
FILTERS: Mapping[str, Filter] = {
    node_unschedulable.NAME: node_unschedulable.refusals,
    node_name.NAME: node_name.refusals,
    taint_toleration.NAME: taint_toleration.refusals,
    node_affinity.NAME: node_affinity.refusals,
    node_ports.NAME: node_ports.refusals,
    node_resources_fit.NAME: node_resources_fit.refusals,
    volume_restrictions.NAME: volume_restrictions.refusals,
    node_volume_limits.NAME: node_volume_limits.refusals,
    volume_binding.NAME: volume_binding.refusals,
    volume_zone.NAME: volume_zone.refusals,
    pod_topology_spread.NAME: pod_topology_spread.refusals,
    inter_pod_affinity.NAME: inter_pod_affinity.refusals,
}

#: What volumes are made of.
STORAGE_KINDS = (
    "PersistentVolume",
    "PersistentVolumeClaim",
    "StorageClass",
    "CSINode",
    "CSIDriver",
    "CSIStorageCapacity",
    "VolumeAttachment",
)
#: Kinds whose objects are in no namespace.
_CLUSTER_KINDS = {"Node", "Namespace", *STORAGE_KINDS} - {"PersistentVolumeClaim", "CSIStorageCapacity"}

#: With the weights of the default profile.
SCORES: Mapping[str, tuple[int, Score]] = {
    taint_toleration.NAME: (3, taint_toleration.scores),
    node_affinity.NAME: (2, node_affinity.scores),
    node_resources_fit.NAME: (1, node_resources_fit.scores),
    pod_topology_spread.NAME: (2, pod_topology_spread.scores),
    inter_pod_affinity.NAME: (2, inter_pod_affinity.scores),
    balanced_allocation.NAME: (1, balanced_allocation.scores),
    image_locality.NAME: (1, image_locality.scores),
    volume_binding.NAME: (1, volume_binding.scores),
}


class Cluster:
    """API objects by kind, namespace and name. Nothing that is derived from them is kept, but for image sizes."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str, str], Object] = {}
        #: By image name: the size first reported. Kept until no node has the name.
        self._image_bytes: dict[str, int] = {}

    def apply(self, obj: Object) -> None:
        """Create the object or replace the one of the same kind, namespace and name."""
        stored = in_fields(obj) if obj["kind"] == "Pod" else obj
        self._objects[_key(obj["kind"], namespace_of(obj), obj["metadata"]["name"])] = stored
        self._refresh_image_sizes()

    def delete(self, kind: str, namespace: str | None, name: str) -> None:
        """Remove an object, if it is there."""
        self._objects.pop(_key(kind, namespace or "default", name), None)
        self._refresh_image_sizes()

    def evaluate(
        self, pod: Object, config: Object | None = None, gates: Mapping[str, bool] | None = None
    ) -> dict[str, Any]:
        """
        Return the decision on a pod against the cluster as it stands; changes nothing.

        Returns: `prefilter` (only on refusal), `prefilterNodes` (only where names were narrowed), `filter`,
        `feasible`, `score`, `total` and `message` (only where no node is feasible; without what preemption adds),
        as the recorded decisions have them. A cycle that fails returns its `error` alone.
        """
        question = self._question(in_fields(pod), config, gates or {})
        try:
            return _decision(question)
        except CycleError as error:
            return {"error": str(error)}

    def evaluate_and_preempt(self, pod: Object, config: Object | None = None) -> dict[str, Any]:
        """Return the decision with `preemption` where no node is feasible, and its part of the message."""
        decision = self.evaluate(pod, config)
        if "message" not in decision:
            return decision
        question = self.question(pod, config)
        refusals = {} if "prefilter" in decision else node_refusals(question)
        found, text = preemption(question, refusals, self.budgets(), refusal_on)
        return {**decision, "preemption": found, "message": f"{decision['message']} {text}".rstrip()}

    def question(self, pod: Object, config: Object | None = None) -> Question:
        """Return the pod and the cluster as plugins see them."""
        return self._question(in_fields(pod), config, {})

    def budgets(self) -> list[Object]:
        """Return every PodDisruptionBudget."""
        return self._of("PodDisruptionBudget")

    def _of(self, kind: str) -> list[Object]:
        return [obj for (its_kind, _, _), obj in self._objects.items() if its_kind == kind]

    def _question(self, pod: Object, config: Object | None, gates: Mapping[str, bool]) -> Question:
        nodes = {node["metadata"]["name"]: node for node in self._of("Node")}
        pods_on: dict[str, list[Object]] = {name: [] for name in nodes}
        for existing in self._of("Pod"):
            node = existing["spec"].get("nodeName")
            done = (existing.get("status") or {}).get("phase") in ("Succeeded", "Failed")
            if node in pods_on and not done:
                pods_on[node].append(existing)
        n_nodes = Counter(image for node in nodes.values() for image in _images(node))
        return Question(
            pod=pod,
            nodes=nodes,
            pods_on=pods_on,
            namespaces={obj["metadata"]["name"]: labels_of(obj) for obj in self._of("Namespace")},
            owners={
                kind: self._of(kind)
                for kind in ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")
            },
            images={image: Image(size, n_nodes[image]) for image, size in self._image_bytes.items()},
            args=_plugin_args(_profile(config)),
            disabled=_disabled(_profile(config)),
            gates=gates,
            storage={kind: self._of(kind) for kind in STORAGE_KINDS},
        )

    def _refresh_image_sizes(self) -> None:
        reported: dict[str, int] = {}
        for node in self._of("Node"):
            for image, size_bytes in _images(node).items():
                reported.setdefault(image, size_bytes)
        self._image_bytes = {image: self._image_bytes.get(image, size) for image, size in reported.items()}


def _key(kind: str, namespace: str, name: str) -> tuple[str, str, str]:
    return (kind, "" if kind in _CLUSTER_KINDS else namespace, name)


def _images(node: Object) -> dict[str, int]:
    """Return bytes by image name; the first mention of a name on the node counts."""
    sizes: dict[str, int] = {}
    for image in (node.get("status") or {}).get("images") or []:
        for name in image.get("names") or []:
            sizes.setdefault(name, image.get("sizeBytes") or 0)
    return sizes


def _profile(config: Object | None) -> Object:
    """Return the only profile of a configuration."""
    profiles: list[Object] = (config or {}).get("profiles") or [{}]
    return profiles[0]


def _plugin_args(profile: Object) -> dict[str, Object]:
    return {entry["name"]: entry.get("args") or {} for entry in profile.get("pluginConfig") or []}


def _disabled(profile: Object) -> frozenset[tuple[str, str]]:
    """Return every (extension point, plugin) that the profile switches off; "multiPoint" means all points."""
    return frozenset(
        (point, plugin["name"])
        for point, plugins in (profile.get("plugins") or {}).items()
        for plugin in plugins.get("disabled") or []
    )


def _decision(question: Question) -> dict[str, Any]:
    if not question.nodes:
        return {"error": "no nodes available to schedule pods"}
    narrowed: frozenset[str] | None = None
    refusals: dict[str, Verdict] = {}
    for name, prefilter in PREFILTERS.items():
        if not question.runs("preFilter", name):
            continue
        answer = prefilter(question)
        if isinstance(answer, Verdict):
            refusals[name] = answer
        elif narrowed is None:
            narrowed = answer
    if refusals:
        return _refused_everywhere(question, refusals)
    allowed = frozenset(question.nodes) if narrowed is None else narrowed
    refused = {name: ask(question) for name, ask in FILTERS.items() if question.runs("filter", name)}
    feasible = sorted(
        node
        for node in question.nodes
        if node in allowed and not any(node in by_node for by_node in refused.values())
    )
    score = _scores(question, feasible) if feasible else {}
    decision: dict[str, Any] = {
        "filter": {name: _as_json(by_node) for name, by_node in refused.items() if by_node},
        "feasible": feasible,
        "score": score,
        "total": {
            node: sum(SCORES[name][0] * by_node[node] for name, by_node in score.items()) for node in feasible
        },
    }
    if narrowed is not None:
        decision["prefilterNodes"] = sorted(narrowed)
    if not feasible:
        decision["message"] = _fit_error(question, _first_reasons(question, refused, allowed))
    return decision


def node_refusals(question: Question) -> dict[str, Verdict]:
    """Return by node the first plugin's refusal of the pod."""
    names = [answer for ask in PREFILTERS.values() if isinstance(answer := ask(question), frozenset)]
    refused = [ask(question) for name, ask in FILTERS.items() if question.runs("filter", name)]
    found = {node: by_node[node] for by_node in reversed(refused) for node in by_node}
    left_out = {node for node in question.nodes if any(node not in allowed for allowed in names)}
    return {**found, **dict.fromkeys(left_out, Verdict(UNRESOLVABLE, ()))}


def refusal_on(question: Question, node: str) -> Verdict | None:
    """Return why the node refuses the pod; None if it does not."""
    asked = (ask(question) for name, ask in FILTERS.items() if question.runs("filter", name))
    return next((by_node[node] for by_node in asked if node in by_node), None)


def _scores(question: Question, feasible: list[str]) -> dict[str, dict[str, int]]:
    score = {}
    for name, (_, ask) in SCORES.items():
        by_node = ask(question, feasible) if question.runs("score", name) else None
        if by_node is not None:
            score[name] = by_node
    return score


def _refused_everywhere(question: Question, refusals: Mapping[str, Verdict]) -> dict[str, Any]:
    """Return a decision whose message is the first refusal, which ends the cycle."""
    first = next(iter(refusals.values()))
    return {
        "prefilter": _as_json(refusals),
        "filter": {},
        "feasible": [],
        "score": {},
        "total": {},
        "message": f"0/{len(question.nodes)} nodes are available: {', '.join(first.reasons)}.",
    }


def _first_reasons(
    question: Question, refused: Mapping[str, Mapping[str, Verdict]], allowed: frozenset[str]
) -> Counter[str]:
    """Return the number of nodes by reason, each node with the first plugin that refuses it."""
    reasons: Counter[str] = Counter()
    for node in question.nodes:
        if node not in allowed:
            reasons[f"node(s) didn't satisfy plugin(s) [{node_affinity.NAME}]"] += 1
            continue
        first = next(by_node[node] for by_node in refused.values() if node in by_node)
        reasons.update(first.reasons)
    return reasons


def _fit_error(question: Question, reasons: Counter[str]) -> str:
    entries = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"0/{len(question.nodes)} nodes are available: {', '.join(entries)}."


def _as_json(verdicts: Mapping[str, Verdict]) -> dict[str, Any]:
    return {
        name: {"code": verdict.code, "reasons": list(verdict.reasons)} for name, verdict in verdicts.items()
    }
