"""A cluster as JSON, its explanations, and a machine that schedules on it."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from scheduler.daemon.assembly.profiles import build_profiles
from scheduler.daemon.settings.loading import default_settings
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.revisions import REVISION_KEY
from scheduler.engine.model.stimuli import ObjectSeen
from scheduler.engine.model.volumes import SELECTED_NODE
from scheduler.engine.state.audit import differences
from scheduler.engine.state.cluster import ClusterState
from scheduler.tools.explain.explainer import ExplainRequest, explain
from scheduler.tools.explain.formats.explanation import Explanation
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster
from scheduler.tools.explain.simulation.watch_events import apply_event
from tests.support import build
from tests.support.driving import NAME, Driver

SETTINGS = default_settings()


@dataclass
class Cluster:
    """API objects. A pod without a node is pending."""

    nodes: list[build.Json]
    pods: list[build.Json] = field(default_factory=list)
    namespaces: list[build.Json] = field(default_factory=list)
    services: list[build.Json] = field(default_factory=list)
    #: Claims, volumes and what else volumes are made of.
    storage: list[build.Json] = field(default_factory=list)
    #: Claims, slices and classes of devices; served if there are any.
    devices: list[build.Json] = field(default_factory=list)
    #: The time of day.
    epoch_s: float = 0.0

    def state(self, state: ClusterState | None = None) -> ClusterState:
        """Return a state with all objects but pending pods, in the empty `state` if one is given."""
        state = state or ClusterState()
        state.devices.epoch_s = self.epoch_s
        for namespace in self.namespaces:
            labelled = KINDS["Namespace"].decode(encoded(namespace))
            state.relabel_namespace(labelled.name, labelled.labels)
        for node in self.nodes:
            state.nodes.upsert(decode_node(encoded(node)))
        for service in self.services:
            state.workloads.upsert(KINDS["Service"].decode(encoded(service)))
        for obj in self.storage:
            state.volumes.upsert(KINDS[obj["kind"]].decode(encoded(obj)))
        for obj in self.devices:
            apply_event(state, ObjectSeen(KINDS[obj["kind"]].decode(encoded(obj))))
        if self.devices:
            state.devices.serve(*DeviceKind)
        for pod in self.pods:
            if pod["spec"].get("nodeName"):
                state.upsert_pod(decoded(pod))
        return state

    def explain(self, pod: build.Json, **more: Any) -> Explanation:
        """Return the pod's explanation, and check that the state did not change."""
        state = self.state()
        answer = explain(self.request(pod, state, **more))
        assert differences(state) == []
        assert sorted(state.placed) == sorted(
            p["metadata"]["uid"] for p in self.pods if p["spec"].get("nodeName")
        )
        return answer

    def request(self, pod: build.Json, state: ClusterState, **more: Any) -> ExplainRequest:
        return ExplainRequest(
            pod=decoded(pod),
            state=state,
            new_profile=lambda view: build_profiles(SETTINGS, view)[NAME],
            pending_pods=[decoded(p) for p in self.pods if not p["spec"].get("nodeName")],
            **more,
        )

    def driver(self) -> Driver:
        """Return a machine that knows all objects but pending pods."""
        driver = Driver()
        self.state(driver.state)
        return driver

    def changed(self, changes: Iterable[build.Json], pod: build.Json) -> tuple[Cluster, build.Json]:
        """Return cluster and pod after changes given as JSON, made on the JSON objects."""
        after, subject = copy.deepcopy(self), copy.deepcopy(pod)
        for change in changes:
            after._change(change, subject, pod)
        return after, subject

    def _change(self, change: build.Json, subject: build.Json, original: build.Json) -> None:
        match change["change"]:
            case "removePod":
                self.pods = [p for p in self.pods if p["metadata"]["uid"] != change["uid"]]
            case "runPod":
                self.pods.append(
                    build.pod(
                        f"new-{len(self.pods)}",
                        namespace=change["namespace"],
                        labels=change["labels"],
                        node=change["node"],
                    )
                )
            case "addRoom":
                room = self._node(change)["status"]["allocatable"]
                unit = "m" if change["resource"] == "cpu" else ""
                more = f"{change['amount']}{unit}"
                room[change["resource"]] = _sum(room.get(change["resource"], "0"), more, change["resource"])
            case "tolerateTaint":
                said = {key: change[key] for key in ("key", "value", "effect") if change[key]}
                subject["spec"].setdefault("tolerations", []).append({**said, "operator": "Equal"})
            case "removeTaint":
                spec = self._node(change)["spec"]
                spec["taints"] = [t for t in spec["taints"] if t["key"] != change["key"]]
            case "uncordon":
                spec = self._node(change)["spec"]
                spec.pop("unschedulable", None)
                key = "node.kubernetes.io/unschedulable"
                spec["taints"] = [t for t in spec.get("taints", ()) if t["key"] != key]
            case "labelNode":
                labels = self._node(change)["metadata"]["labels"]
                labels.pop(change["key"], None)
                if change["value"] is not None:
                    labels[change["key"]] = change["value"]
            case "labelNamespace":
                named = [n for n in self.namespaces if n["metadata"]["name"] == change["namespace"]]
                named[0]["metadata"]["labels"][change["key"]] = change["value"]
            case "allowSkew":
                for constraint in subject["spec"]["topologySpreadConstraints"]:
                    if constraint["topologyKey"] == change["topologyKey"]:
                        constraint["maxSkew"] = change["maxSkew"]
            case "addMatchLabelKey" if change["field"] == "topologySpreadConstraints":
                spread = [
                    c for c in subject["spec"][change["field"]] if c["topologyKey"] == change["topologyKey"]
                ]
                _narrow([c for c in spread if _selects_itself(c, subject)], subject)
            case "addMatchLabelKey":
                _narrow(_across_revisions(subject, change), subject)
            case "honorPolicy":
                for constraint in subject["spec"]["topologySpreadConstraints"]:
                    if constraint["topologyKey"] == change["topologyKey"]:
                        constraint[change["field"]] = "Honor"
            case "rollOutInPlace":
                own = subject["metadata"]["labels"][REVISION_KEY]
                old = [p for p in self.pods if p["metadata"]["labels"].get(REVISION_KEY, own) != own]
                self.pods.remove(max(old, key=lambda pod: pod["metadata"]["name"]))
            case "unselectNode":
                for claim in self.storage:
                    if claim["metadata"]["name"] == change["claim"]:
                        del claim["metadata"]["annotations"][SELECTED_NODE]
            case "recreateWithMatchLabelKey":
                own = [_covered(term, original) for term in _across_revisions(original, change)]
                for running in (p for p in self.pods if p["spec"].get("nodeName")):
                    _narrow([t for t in _anti_affinity(running) if _covered(t, running) in own], running)
            case other:
                raise AssertionError(f"unknown change: {other}")

    def _node(self, change: build.Json) -> build.Json:
        (node,) = [n for n in self.nodes if n["metadata"]["name"] == change["node"]]
        return node


def _anti_affinity(pod: build.Json) -> list[build.Json]:
    terms = pod["spec"].get("affinity", {}).get("podAntiAffinity", {})
    return list(terms.get("requiredDuringSchedulingIgnoredDuringExecution", ()))


def _across_revisions(pod: build.Json, change: build.Json) -> list[build.Json]:
    """Return the pod's anti-affinity terms by the change's topology key that select the pod itself."""
    by_key = [term for term in _anti_affinity(pod) if term["topologyKey"] == change["topologyKey"]]
    return [
        t for t in by_key if pod["metadata"]["namespace"] in _covered(t, pod)[1] and _selects_itself(t, pod)
    ]


def _selects_itself(term: build.Json, pod: build.Json) -> bool:
    return all(pod["metadata"]["labels"].get(k) == v for k, v in term["labelSelector"]["matchLabels"].items())


def _covered(term: build.Json, pod: build.Json) -> tuple[build.Json, list[str]]:
    """Return the term, and the namespaces that it names: the pod's own if it says nothing about them."""
    names = term.get("namespaces") or ([] if "namespaceSelector" in term else [pod["metadata"]["namespace"]])
    return term, sorted(names)


def _narrow(terms: list[build.Json], pod: build.Json) -> None:
    """Narrow the terms to the pod's revision, as the API server does for `matchLabelKeys: [pod-template-hash]`."""
    revision = pod["metadata"]["labels"].get("pod-template-hash")
    for term in terms if revision else ():
        only = {"key": "pod-template-hash", "operator": "In", "values": [revision]}
        term["labelSelector"].setdefault("matchExpressions", []).append(only)


def _sum(first: str, second: str, resource: str) -> str:
    from scheduler.engine.syntax.quantity import parse_quantity

    total = parse_quantity(first) + parse_quantity(second)
    return f"{total.milli_value()}m" if resource == "cpu" else str(total.value())


def loaded(*documents: build.Json, settings: Settings = SETTINGS) -> LoadedCluster:
    """Return these objects, each of which has its kind, as the commands have them."""
    cluster = LoadedCluster(settings)
    by_kind = {row.kind: row for row in cluster.kinds}
    for document in documents:
        cluster.apply(cluster.decode(by_kind[document["kind"]], msgspec.Raw(encoded(document))))
    return cluster


def encoded(document: build.Json) -> bytes:
    return msgspec.json.encode(document)


#: Of all tests: pods of a group share their spec, as in a scheduler.
_DECODER = PodDecoder()


def decoded(document: build.Json) -> Pod:
    return _DECODER.decode(encoded(document))


def as_json(answer: Explanation) -> Any:
    """Return the explanation as `-o json` prints it."""
    return msgspec.json.decode(msgspec.json.encode(answer))


def zoned(names: str, **more: Any) -> list[build.Json]:
    """Return nodes such as `a1 a2 b1`, each in the zone of its first letter."""
    return [build.node(name, labels={build.ZONE: name[0]}, **more) for name in names.split()]


def web(name: str, node: str | None = None, **more: Any) -> build.Json:
    """Return a pod with the label app=web."""
    return build.pod(name, labels={"app": "web"}, node=node, **more)


def alone_per_zone(app: str = "web") -> build.Json:
    return build.affinity(anti_required=[build.term(build.ZONE, build.selector(f"app={app}"))])


def groups(answer: Explanation) -> list[tuple[int, str, str]]:
    """Return (nodes, plugin, where) of each group."""
    return [(group.n_nodes, group.plugin, group.where) for group in answer.groups]


def changes(answer: Explanation) -> list[list[str]]:
    """Return the types of each suggestion's changes."""
    return [[type(change).__name__ for change in s.changes] for s in answer.suggestions]
