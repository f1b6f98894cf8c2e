"""The state of the scheduler itself: its leader, the age of its caches, its queue and its rates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

from scheduler.engine.queueing.queued_pod import QueuedPod, SubQueue
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.matching import PodMatcher
from scheduler.tools.explain.formats.explanation import Document, JsonStruct
from scheduler.tools.page.throughput import Throughput

#: Pods whose age is looked at; in a longer queue the oldest may be missed.
_MAX_LOOKED_AT: Final = 2_000
_COMPONENT_LABEL: Final = "app.kubernetes.io/name"
#: The values of that label in the manifests.
_COMPONENTS: Final = ("affinity-scheduler-enforcer", "affinity-scheduler-webhook")


class CacheStatus(JsonStruct, frozen=True, kw_only=True):
    """
    The watch of one kind.

    `is_served`: whether the API server has the kind. `silent_seconds`: since it last sent anything, which it does about
    once a minute.
    """

    kind: str
    is_served: bool
    is_synced: bool
    silent_seconds: float


class SubQueueStatus(JsonStruct, frozen=True, kw_only=True):
    """The pods of one sub-queue. `oldest`: when the oldest was created, '' for none; see `Now.oldest_is_exact`."""

    queue: str
    n_pods: int
    oldest: str


class ComponentPods(JsonStruct, frozen=True, kw_only=True):
    """Pods of the enforcer or of the webhook that have a node."""

    name: str
    n_pods: int


class Now(Document, frozen=True, kw_only=True):
    """
    The scheduler at `at`, in seconds since the epoch.

    `emulated_version`: of Kubernetes, whose decisions these are. `role`: "alone" without leader election. `leader`: the
    holder of the Lease, '' if unknown. `n_unconfirmed`: binds that no watch has shown yet. `newest_decision`: the
    number of the newest attempt. `rules_with_breaches`: rules that do not hold everywhere, as of the last survey.
    """

    kind: str = "Now"
    at: float
    version: str
    emulated_version: str
    role: Literal["alone", "leader", "standby"]
    leader: str
    is_synced: bool
    is_fresh: bool
    caches: tuple[CacheStatus, ...]
    n_unconfirmed: int
    n_binding: int
    n_nodes: int
    n_cordoned: int
    n_placed: int
    queue: tuple[SubQueueStatus, ...]
    oldest_is_exact: bool
    throughput: Throughput
    components: tuple[ComponentPods, ...]
    newest_decision: int
    rules_with_breaches: int


def queue_status(
    pods: Iterable[QueuedPod], depths: dict[str, int]
) -> tuple[tuple[SubQueueStatus, ...], bool]:
    """Return each sub-queue's depth and oldest pod, and whether all pods were looked at."""
    oldest: dict[str, str] = {}
    for n_looked_at, queued in enumerate(pods):
        if n_looked_at >= _MAX_LOOKED_AT:
            break
        name, created = queued.sub_queue.value, queued.pod.created
        oldest[name] = min(oldest.get(name, created), created)
    names = [one.value for one in SubQueue if one is not SubQueue.NONE]
    status = tuple(
        SubQueueStatus(queue=name, n_pods=depths.get(name, 0), oldest=oldest.get(name, "")) for name in names
    )
    return status, sum(depths.values()) <= _MAX_LOOKED_AT


def components(state: ClusterState) -> tuple[ComponentPods, ...]:
    """Return the number of placed pods of each of our other components. O(placed pods)."""
    found = []
    for name in _COMPONENTS:
        selected = state.label_sets.selected(PodMatcher.of({_COMPONENT_LABEL: name}))
        by_row = state.pods.per_row(selected, state.nodes.n_rows, live_only=True)
        found.append(ComponentPods(name=name, n_pods=int(by_row.sum())))
    return tuple(found)
