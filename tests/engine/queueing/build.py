"""Queues of stub plugins, and pods and nodes for them, decoded from JSON in which only what matters is spelled out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from scheduler.engine.framework.events import ClusterEventWithHint
from scheduler.engine.framework.interface import FilterPlugin, PodContext, PreEnqueuePlugin
from scheduler.engine.framework.profile import Profile
from scheduler.engine.framework.status import SKIP, Skip
from scheduler.engine.model.nodes import Node, decode_node
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.pods import Pod
from scheduler.engine.queueing.pod_queue import PodQueue
from tests.support import build

PROFILE = "default-scheduler"
_DECODER = PodDecoder()


class _Plugin(FilterPlugin, PreEnqueuePlugin):
    """A plugin that registers these events, and admits at PreEnqueue the pods that `passes` selects."""

    def __init__(
        self,
        name: str,
        events: Sequence[ClusterEventWithHint],
        passes: Callable[[Pod], bool] = lambda _pod: True,
    ) -> None:
        self.name, self._events, self._passes = name, events, passes

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return self._events

    def admits(self, pod: Pod) -> bool:
        return self._passes(pod)

    def prefilter(self, _context: PodContext, _view: object) -> Skip:
        return SKIP


def queue_with(
    events: Mapping[str, Sequence[ClusterEventWithHint]],
    gates: Mapping[str, Callable[[Pod], bool]] | None = None,
    *,
    others: Mapping[str, Mapping[str, Sequence[ClusterEventWithHint]]] | None = None,
    **options: Any,
) -> PodQueue:
    """
    Return the queue of a profile whose plugins register these events, by name, and of `others` by schedulerName.

    `gates`: which pods a plugin admits at PreEnqueue.
    """
    checks = tuple(_Plugin(name, events.get(name, ()), passes) for name, passes in (gates or {}).items())
    profiles = {
        name: Profile(name, tuple(_Plugin(*each) for each in of_profile.items()), ())
        for name, of_profile in {PROFILE: events, **(others or {})}.items()
    }
    return PodQueue(profiles | {PROFILE: replace(profiles[PROFILE], pre_enqueue=checks)}, **options)


def pod(
    name: str,
    *,
    namespace: str = "default",
    priority: int | None = None,
    labels: Mapping[str, str] | None = None,
    gates: Sequence[str] = (),
    tolerations: Sequence[str] = (),
    requests: Mapping[str, str] | None = None,
    profile: str = PROFILE,
    claims: Sequence[str] = (),
    ephemeral: Sequence[str] = (),
) -> Pod:
    """Return a pending pod whose UID is its name, with a volume for each claim and each ephemeral volume's name."""
    spec = {
        "schedulerName": profile,
        "priority": priority,
        "schedulingGates": [{"name": gate} for gate in gates],
        "volumes": [
            *({"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims),
            *({"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": {}}}} for name in ephemeral),
        ],
    }
    document = build.pod(
        name,
        uid=name,
        namespace=namespace,
        labels=labels,
        tolerations=[build.toleration(key) for key in tolerations],
        containers=[build.container(requests=requests)],
        spec=spec,
    )
    return _DECODER.decode(msgspec.json.encode(document))


def node(*, features: Sequence[str] = (), cpu: str = "4", **more: Any) -> Node:
    """Return a node; for other keywords see `build.node`."""
    document = build.node("n1", allocatable={"cpu": cpu}, **more)
    document["status"]["declaredFeatures"] = list(features)
    return decode_node(msgspec.json.encode(document))
