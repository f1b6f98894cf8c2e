"""A cluster in memory that decides, explains and simulates as the scheduler does."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, Final

import msgspec
import numpy as np

from scheduler.daemon.assembly.profiles import build_profiles
from scheduler.daemon.settings.loading import load_settings, parse_settings
from scheduler.daemon.settings.out_of_tree_files import LoadedPlugins, load_classes, load_plugins
from scheduler.daemon.settings.plugin_lists import API_VERSION
from scheduler.daemon.settings.resolved import Settings
from scheduler.engine.core.decide import CycleError, ScheduleResult, decide
from scheduler.engine.core.node_scores import Refusal
from scheduler.engine.framework.diagnosis import FitError, PluginRefusals
from scheduler.engine.framework.profile import Profile
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS
from scheduler.engine.model.stimuli import NodeGone, PodGone, Stimulus
from scheduler.engine.state.audit import differences
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.sdk.testing.decisions import Decision, Explained, Simulated, Table
from scheduler.sdk.testing.objects import JsonObject
from scheduler.tools.explain.answers import explain_pod
from scheduler.tools.explain.formats.manifests import Manifest, parse_manifest
from scheduler.tools.explain.recordings import read_snapshot
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster, profile_for
from scheduler.tools.explain.simulation.replicas import place_replicas, zone_of

#: A plugin's class, or the file or folder that has it.
Plugin = type[Any] | str | PathLike[str]
#: A pod or another object that creates pods, as API JSON, or `namespace/name` of a pod of the cluster.
PodLike = Mapping[str, Any] | str

_NAME: Final = "affinity-scheduler"
_NAMESPACE: Final = "default"


class Cluster:
    """
    Nodes and pods, and a profile that decides about them. Nothing is asked of any API server.

    Args:
        plugins: plugins of one's own, which run after the built-in ones.
        args: their arguments by name, as their `Args` or as a configuration has them.
        config: a configuration file instead; it names the plugins that run.
        alone: whether they run without the built-in ones.
        seed: of the choice between nodes with equal scores.

    Raises SettingsError with every mistake of plugins, arguments and configuration.
    """

    def __init__(
        self,
        *,
        plugins: Sequence[Plugin] = (),
        args: Mapping[str, Any] | None = None,
        config: str | PathLike[str] | None = None,
        alone: bool = False,
        seed: int = 1,
    ) -> None:
        loaded = _loaded(plugins)
        if config is not None:
            self.settings = load_settings(str(config), DEFAULT_SEMANTICS, loaded)
        else:
            self.settings = _settings(loaded, args or {}, alone=alone)
        self._seed = seed
        self._read = LoadedCluster(self.settings)
        self._objects: dict[tuple[str, str, str], JsonObject] = {}
        #: Gets every object as a running scheduler would, so that its plugins and its queue are up to date.
        self._world = self._read.world(random.Random(seed))

    @classmethod
    def from_snapshot(cls, file: str | PathLike[str], **options: Any) -> Cluster:  # noqa: ANN401 - as the constructor's
        """
        Return the cluster of a file that `affinity-scheduler snapshot` made; `options` as for `Cluster`.

        Raises SettingsError if it is none.
        """
        cluster = cls(**options)
        read_snapshot(str(file), cluster._read)
        return cluster

    # Objects.

    def add(self, *objects: Mapping[str, Any]) -> Cluster:
        """
        Add API objects, or replace those of the same kind and name; return the cluster.

        Raises ValueError for an object that the scheduler cannot read, or does not.
        """
        for one in objects:
            document = completed(one)
            seen = self.stimulus(document)
            self._world.handle(seen)
            self._read.apply(seen)
            metadata = document["metadata"]
            self._objects[document["kind"], metadata.get("namespace", ""), metadata["name"]] = document
        return self

    def stimulus(self, document: Mapping[str, Any]) -> Stimulus:
        """Return the stimulus that a watch makes of the object. Raises ValueError for an object that cannot be read."""
        kinds, kind = {one.kind: one for one in self._read.kinds}, document.get("kind")
        if kind not in kinds:
            raise ValueError(f"found kind {kind!r}, expected one of {', '.join(kinds)}")
        return kinds[kind].on_upsert(kinds[kind].decode(msgspec.Raw(msgspec.json.encode(document))))

    @property
    def objects(self) -> list[JsonObject]:
        """The objects that were added, as they are now."""
        return list(self._objects.values())

    def remove_pod(self, name: str, namespace: str = _NAMESPACE) -> None:
        """Remove a pod. Raises KeyError if there is none of that name."""
        pod = self._read.pods.pop((namespace, name))
        self._world.handle(PodGone(pod.uid))
        self._objects.pop(("Pod", namespace, name), None)

    def remove_node(self, name: str) -> None:
        """Remove a node. Raises KeyError if there is none of that name."""
        if self._read.state.node(name) is None:
            raise KeyError(name)
        self._world.handle(NodeGone(name))
        self._objects.pop(("Node", "", name), None)

    @property
    def nodes(self) -> Table:
        """One row per node."""
        state = self._read.state
        rows = [
            {
                "node": node.name,
                "zone": zone_of(state, node.name),
                "pods": len(state.placed_on(row)),
                "labels": dict(node.labels),
                "created": node.created,
                "cordoned": node.unschedulable,
            }
            for row, node in enumerate(state.nodes.nodes)
            if node is not None
        ]
        return Table(("node", "zone", "pods", "created", "cordoned", "labels"), rows)

    @property
    def pods(self) -> Table:
        """One row per pod that has not finished."""
        rows = [
            {"namespace": pod.namespace, "pod": pod.name, "node": pod.node_name, "labels": dict(pod.labels)}
            for pod in self._read.pods.values()
        ]
        return Table(("namespace", "pod", "node", "labels"), rows)

    @property
    def profiles(self) -> Mapping[str, Profile]:
        """The profiles that decide, by schedulerName."""
        return build_profiles(self.settings, ClusterView(self._read.state))

    @property
    def differences(self) -> list[str]:
        """The counts that differ from a recount, one line each."""
        return differences(self._read.state)

    # Questions. None of them changes a node or a pod.

    def decide(self, pod: PodLike) -> Decision:
        """Return the decision about the pod as if it were pending. Of an object that creates pods, the first pod."""
        decided, state = self._pod(pod), self._read.state
        placed = state.remove_pod(decided.uid)
        rng = random.Random(self._seed)
        try:
            made = decide(_pending(decided), ClusterView(state), self._profile(decided), rng)
            if isinstance(made, CycleError):
                return Decision(None, made.message, {}, {}, {}, {}, {}, error=not made.unschedulable)
            if isinstance(made, FitError):
                refused, by = _refused(self._read, made.per_node)
                return Decision(None, made.message(), refused, by, {}, {}, {})
            return _scored(self._read, made)
        finally:
            if placed is not None:
                state.upsert_pod(placed)

    def time_decision(self, pod: PodLike) -> float:
        """Return the seconds of CPU that the decision about the pod takes, without the reading of the pod."""
        decided, view = _pending(self._pod(pod)), ClusterView(self._read.state)
        profile, rng = self._profile(decided), random.Random(self._seed)
        began_s = time.process_time()
        decide(decided, view, profile, rng)
        return time.process_time() - began_s

    def explain(self, pod: PodLike) -> Explained:
        """Return why the pod is pending, or is where it is, and what would help."""
        read = self._read if isinstance(pod, str) else self._read.copy()
        return Explained(explain_pod(read, self._pod(pod, read), None))

    def simulate(self, pod: PodLike, replicas: int | None = None) -> Simulated:
        """
        Return where replicas of the pod, or of the object that creates it, would go, one after the other.

        `replicas`: by default as many as the object asks for.
        """
        read = self._read.copy()
        if isinstance(pod, str):
            first, wanted = _pending(self._pod(pod)), 1 if replicas is None else replicas
            pods = [
                replace(first, name=f"{first.name}-{number}", uid=f"not-created/{first.key}-{number}")
                for number in range(wanted)
            ]
        else:
            manifest = self._manifest(pod)
            wanted = manifest.n_replicas if replicas is None else replicas
            pods = [_pending(read.create_pod(manifest, number)) for number in range(wanted)]
        world = read.world(random.Random(self._seed), {pod.scheduler_name for pod in pods})
        placed = place_replicas(pods, world)
        nodes, unplaced = tuple(node for _, node in placed.pods), placed.first_unplaced
        why = None if unplaced is None else Explained(explain_pod(read, unplaced, None, adds_replicas=True))
        return Simulated(wanted, nodes, {node: zone_of(read.state, node) for node in nodes}, why)

    def _pod(self, pod: PodLike, read: LoadedCluster | None = None) -> Pod:
        if not isinstance(pod, str):
            return (read or self._read).create_pod(self._manifest(pod), 0)
        namespace, _, name = pod.rpartition("/")
        found = self._read.pods.get((namespace or _NAMESPACE, name))
        if found is None:
            raise KeyError(f"there is no pod {namespace or _NAMESPACE}/{name}")
        return found

    def _manifest(self, document: Mapping[str, Any]) -> Manifest:
        return parse_manifest(document, namespace=_NAMESPACE, semantics=self.settings.semantics)

    def _profile(self, pod: Pod) -> Profile:
        """Return the pod's profile, which is made once as in a scheduler."""
        return self._world.profiles[profile_for(pod, self.settings)[0].scheduler_name]


def _loaded(plugins: Sequence[Plugin]) -> LoadedPlugins:
    classes = [one for one in plugins if isinstance(one, type)]
    files = load_plugins([str(one) for one in plugins if not isinstance(one, type)], installed=False)
    named = load_classes(classes)
    return LoadedPlugins({**files.by_name, **named.by_name}, files.problems + named.problems)


def _settings(loaded: LoadedPlugins, args: Mapping[str, Any], *, alone: bool) -> Settings:
    """Return the default profile with all of the plugins. Raises InvalidSettingsError."""
    before = ("PrioritySort", "DefaultBinder") if alone else ()
    enabled = [{"name": name} for name in (*before, *loaded.by_name)]
    profile = {
        "schedulerName": _NAME,
        "plugins": {"multiPoint": {"enabled": enabled, "disabled": [{"name": "*"}] if alone else []}},
        "pluginConfig": [{"name": name, "args": msgspec.to_builtins(one)} for name, one in args.items()],
    }
    document = {"apiVersion": API_VERSION, "kind": "KubeSchedulerConfiguration", "profiles": [profile]}
    return parse_settings(msgspec.json.encode(document).decode(), "Cluster", plugins=loaded)


def completed(document: Mapping[str, Any]) -> JsonObject:
    """Return a copy of the object with the namespace and the UID that an API server would have given it."""
    copy: JsonObject = msgspec.json.decode(msgspec.json.encode(document))
    metadata = copy.setdefault("metadata", {})
    if copy.get("kind") == "Pod":
        metadata.setdefault("namespace", _NAMESPACE)
        metadata.setdefault("uid", f"{metadata['namespace']}/{metadata.get('name')}")
    return copy


def _pending(pod: Pod) -> Pod:
    return replace(pod, node_name="", nominated_node_name="")


def _scored(read: LoadedCluster, result: ScheduleResult) -> Decision:
    nodes, scores = read.state.nodes, result.scores
    rows = np.flatnonzero(scores.feasible.mask)
    best_first = rows[np.argsort(-scores.totals[rows].astype(np.int64), kind="stable")].tolist()
    ranked = sorted(best_first, key=lambda row: row != scores.chosen)
    totals = {nodes.name_of(row): scores.totals.item(row) for row in ranked}
    by_node = {
        nodes.name_of(row): {one.plugin: one.scores.item(row) for one in scores.by_plugin}
        for row in ranked
        if scores.by_plugin
    }
    refused, by = _refused(read, scores.filtered.refusals)
    weights = {one.plugin: one.weight for one in scores.by_plugin}
    return Decision(result.node_name, "", refused, by, by_node, totals, weights)


def _refused(
    read: LoadedCluster, refusals: Iterable[Refusal | PluginRefusals]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the reason of each refused node, and the plugin that refused it, both by node."""
    reasons: dict[str, str] = {}
    plugins: dict[str, str] = {}
    for one in refusals:
        statuses = one.statuses() if isinstance(one, Refusal) else one.statuses
        for row in np.flatnonzero(one.rows).tolist():
            node, status = read.state.nodes.name_of(row), statuses.at(row)
            plugins[node], reasons[node] = one.plugin, "" if status is None else status.message
    return reasons, plugins
