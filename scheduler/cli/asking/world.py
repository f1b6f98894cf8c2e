"""A cluster as it was read once: its state, its pods by name, and what of it could not be understood."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import msgspec

from scheduler.explain.manifests import Manifest
from scheduler.framework.profile import Profile
from scheduler.model.nodes import Workload, decode_workload
from scheduler.model.pod_decoder import PodDecoder
from scheduler.model.pods import Pod
from scheduler.model.stimuli import NamespaceSeen, NodeSeen, PodSeen, Stimulus, WorkloadSeen
from scheduler.model.wire import MalformedObjectError
from scheduler.settings.resolved import ProfileSettings, Settings
from scheduler.shell.informers import WatchedKind, required_kinds, workload_kinds
from scheduler.shell.profiles import build_profiles, exempt_namespaces, uses_default_spreading
from scheduler.state.cluster import ClusterState
from scheduler.state.snapshot import Snapshot

#: Nodes named in a note.
_SHOWN_REFUSALS: Final = 5


class World:
    """One reading of a cluster under one configuration."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.state = self.new_state()
        self.kinds = watched_kinds(settings)
        #: Every pod that may still run, by namespace and name.
        self.pods: dict[tuple[str, str], Pod] = {}
        #: Objects that could not be decoded, by kind.
        self.malformed: Counter[str] = Counter()
        #: Failed pods that a kubelet refused.
        self._refused: list[Pod] = []
        self._decoder = PodDecoder()

    def new_state(self) -> ClusterState:
        """An empty state of the same configuration."""
        return ClusterState(exempt_namespaces(self.settings))

    def decoded(self, watched: WatchedKind[object], raw: msgspec.Raw) -> Stimulus | None:
        """What it means that the object is there; None for a malformed one, which is left out as the daemon does."""
        try:
            return watched.on_upsert(watched.decode(raw))
        except MalformedObjectError:
            self.malformed[watched.kind] += 1
            return None

    def see(self, seen: Stimulus | None) -> None:
        """The object is part of the cluster."""
        match seen:
            case None:
                pass
            case NodeSeen(node):
                self.state.upsert_node(node)
            case NamespaceSeen(namespace):
                self.state.upsert_namespace(namespace)
            case WorkloadSeen(workload):
                self.state.upsert_workload(workload)
            case PodSeen(pod):
                self._see_pod(pod)
            case _:
                raise TypeError(f"a list made {type(seen).__name__}")

    def _see_pod(self, pod: Pod) -> None:
        if pod.is_terminal:
            if pod.kubelet_refusal:
                self._refused.append(pod)
            return
        self.pods[pod.namespace, pod.name] = pod
        if pod.node_name:
            self.state.upsert_pod(pod)

    def pending(self) -> list[Pod]:
        """Pods without a node."""
        return [pod for pod in self.pods.values() if not pod.node_name]

    def pod_of(self, plan: Manifest, number: int) -> Pod:
        """
        The pod that the plan would create; its controller is part of the cluster from then on.

        Raises MalformedObjectError.
        """
        if plan.owner is not None:
            self.state.upsert_workload(_workload(plan.owner))
        return self._decoder.decode(msgspec.json.encode(plan.pod(number)))

    def profile_for(self, pod: Pod) -> tuple[ProfileSettings, tuple[str, ...]]:
        """The profile that decides the pod, and a note where the pod names none of ours."""
        by_name = {profile.scheduler_name: profile for profile in self.settings.profiles}
        found = by_name.get(pod.scheduler_name)
        if found is not None:
            return found, ()
        stand_in = self.settings.profiles[0]
        note = (
            f"its schedulerName is {pod.scheduler_name}, which is none of ours: "
            f"explained as profile {stand_in.scheduler_name} would decide"
        )
        return stand_in, (note,)

    def built(self, profile: ProfileSettings, snapshot: Snapshot) -> Profile:
        """The profile, ready to run on the snapshot's state."""
        return build_profiles(self.settings, snapshot)[profile.scheduler_name]

    def refusals_of(self, pod: Pod) -> tuple[str, ...]:
        """A note where kubelets refused pods of the same spec, which a running scheduler holds against their nodes."""
        latest = {refused.node_name: refused for refused in self._refused if refused.spec is pod.spec}
        if not latest:
            return ()
        named = [f"{name} ({refused.kubelet_refusal})" for name, refused in sorted(latest.items())]
        more = f" and {len(named) - _SHOWN_REFUSALS} more" if len(named) > _SHOWN_REFUSALS else ""
        return (
            f"pods of the same spec were refused by the kubelet of {', '.join(named[:_SHOWN_REFUSALS])}{more}; "
            "the scheduler leaves such a node out for 5 s, and for up to 5 min where it goes on refusing",
        )

    def notes(self) -> tuple[str, ...]:
        """What of the cluster could not be read."""
        return tuple(
            f"{count} {kind} object{'s' if count > 1 else ''} left out: malformed"
            for kind, count in sorted(self.malformed.items())
        )


def watched_kinds(settings: Settings) -> tuple[WatchedKind[object], ...]:
    """The kinds that the daemon would watch under this configuration."""
    if any(uses_default_spreading(profile) for profile in settings.profiles):
        return required_kinds() + workload_kinds()
    return required_kinds()


def _workload(owner: Mapping[str, object]) -> Workload:
    return decode_workload(str(owner["kind"]), msgspec.json.encode(owner))
