"""
Level 2: the core is fed with the bytes of watches, as in the daemon: lines, decoded objects, stimuli.

Each kind of event is timed in CPU time, from its bytes to the machine's return: decode, counts, requeue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Final

import msgspec

from scheduler.daemon.assembly.watched_kinds import kinds_asked_by, resource_of
from scheduler.daemon.kube.changes import Deleted, Interrupted, Malformed, Upserted
from scheduler.daemon.kube.client import MAX_LINES_PER_BATCH
from scheduler.daemon.kube.list_watch import ListWatch, Publish
from scheduler.engine.framework.kinds import Asker, WatchedKind
from scheduler.engine.framework.observer import Observer
from scheduler.engine.model.instructions import Bind, WriteReservation
from scheduler.engine.model.stimuli import BindDone, CycleDue
from tests.bench import templates
from tests.bench.loaded import SCHEDULER, LoadedMachine, Profiles
from tests.bench.scene import Scene
from tests.bench.served import Served, in_batches
from tests.bench.templates import Planned
from tests.bench.volumes import claims_and_volumes
from tests.support.build import Json

#: Events of each kind that do not come from the measured pods.
_N_OTHERS: Final = 500


class BytesResult(msgspec.Struct, frozen=True):
    """
    One shape at one size. `us_by_event` is CPU µs per event, `event_us` the mean over all events of a pod's life.

    `load_us` is CPU µs per object of the initial list, `load_s` CPU seconds of all of it.
    """

    shape: str
    n_nodes: int
    n_running: int
    us_by_event: dict[str, float]
    event_us: float
    load_us: float
    load_s: float
    bytes_per_pod: int


class FedMachine:
    """A machine behind watches that the bench feeds; `observer` is called with its profiles."""

    def __init__(self, scene: Scene, observer: Callable[[Profiles], Observer] | None = None) -> None:
        self.loaded = LoadedMachine(scene, observer)
        self.served = Served(SCHEDULER)
        kinds = kinds_asked_by(Asker.EVERY_CONFIGURATION, Asker.DEFAULT_SPREADING, Asker.PLUGINS)
        self._watched = {watched.kind: watched for watched in kinds}
        self._watching: dict[str, ListWatch[Any]] = {
            kind: ListWatch(resource_of(watched), watched.decode, jitter=lambda: 0.5)
            for kind, watched in self._watched.items()
        }
        for watching in self._watching.values():
            watching.on_due()

    def feed(self, kind: str, lines: list[bytes]) -> int:
        """Feed lines of the kind's watch to the machine; return CPU nanoseconds."""
        watching, watched, handle = self._watching[kind], self._watched[kind], self.loaded.handle
        started_ns = time.process_time_ns()
        for action in watching.on_lines(lines):
            if isinstance(action, Publish):
                for change in action.changes:
                    stimulus = _stimulus(watched, change)
                    if stimulus is not None:
                        handle(stimulus)
        return time.process_time_ns() - started_ns

    def feed_all(self, kind: str, lines: Iterable[bytes]) -> tuple[int, int]:
        """Feed lines in the client's batches; return CPU nanoseconds and the number of lines."""
        total_ns = n_lines = 0
        for batch in in_batches(lines, MAX_LINES_PER_BATCH):
            total_ns += self.feed(kind, batch)
            n_lines += len(batch)
        return total_ns, n_lines

    def load(self) -> tuple[int, int]:
        """
        Feed all of the scene but its measured pods as initial events, and try the pods that never fit.

        Return CPU nanoseconds and number of the events.
        """
        scene, served = self.loaded.scene, self.served
        parts: list[tuple[str, Iterable[bytes]]] = [
            ("Namespace", map(served.object, scene.namespaces)),
            ("Service", map(served.object, scene.services)),
            ("Node", (served.object(_reported(node, 0)) for node in scene.nodes)),
            *((one["kind"], [served.object(one)]) for one in _storage(scene)),
            (
                "Pod",
                chain(
                    (served.pod(pod, "running") for pod in scene.running),
                    (served.pod(pod, "pending") for pod in scene.idle),
                ),
            ),
        ]
        total_ns = n_events = 0
        for kind, lines in parts:
            spent_ns, n = self.feed_all(kind, lines)
            total_ns, n_events = total_ns + spent_ns, n_events + n
        for kind in self._watching:
            self.feed(kind, [served.bookmark(kind)])
        self.loaded.run_dry()
        self.loaded.now_s += 60.0
        self.loaded.settle()
        return total_ns, n_events

    def feed_measured(self) -> tuple[int, int]:
        """Feed the measured pods; return CPU nanoseconds and the number of events."""
        pods = self.loaded.scene.measured
        return self.feed_all("Pod", [self.served.pod(pod, "pending") for pod in pods])


def _storage(scene: Scene) -> Iterator[Json]:
    yield from scene.from_drivers
    yield from claims_and_volumes((*scene.running, *scene.measured))


def _stimulus(watched: WatchedKind, change: object) -> Any:
    """Return the stimulus that the informer makes of the change."""
    match change:
        case Upserted(object=seen):
            return watched.on_upsert(seen)
        case Deleted(key=key, uid=uid):
            namespace, _, name = key.rpartition("/")
            return watched.on_delete(namespace, name, uid)
        case Malformed() | Interrupted():
            raise RuntimeError(f"{watched.kind}: {change}")
        case _:
            return None


def measure_bytes(scene: Scene) -> BytesResult:
    """
    Time every event in the life of the scene's measured pods, and some of other pods.

    Raises RuntimeError if a pod stays unbound, a rule is broken, or counts differ from a recount.
    """
    fed = FedMachine(scene)
    load_ns, n_loaded = fed.load()
    try:
        spent = dict(_lives(fed))
        fed.loaded.assert_success()
        spent |= dict(_others(fed))
    finally:
        fed.loaded.close()
    of_pods = [spent[kind] for kind in ("pod pending", "pod bound", "pod running")]
    return BytesResult(
        shape=scene.shape.name,
        n_nodes=scene.size.n_nodes,
        n_running=len(scene.running),
        us_by_event={kind: round(ns / n / 1000, 2) for kind, (ns, n) in spent.items()},
        event_us=sum(ns for ns, _ in of_pods) / sum(n for _, n in of_pods) / 1000,
        load_us=load_ns / n_loaded / 1000,
        load_s=load_ns / 1e9,
        bytes_per_pod=len(fed.served.pod(scene.measured[0], "running", node="n")),
    )


def _lives(fed: FedMachine) -> Iterator[tuple[str, tuple[int, int]]]:
    """Create, bind and run the measured pods one by one; yield CPU nanoseconds and number of each event."""
    scene, served = fed.loaded.scene, fed.served
    planned_by_name = {pod.name: pod for pod in scene.measured}
    yield "pod pending", fed.feed_measured()
    bound_ns = 0
    node_by_name: dict[str, str] = {}
    while fed.loaded.machine.has_work():
        for order in fed.loaded.handle(CycleDue()):
            if isinstance(order, WriteReservation):
                fed.loaded.bind_volumes(order)
            elif isinstance(order, Bind):
                node_by_name[order.pod.name] = order.node_name
                line = served.pod(
                    planned_by_name[order.pod.name], "bound", node=order.node_name, change="MODIFIED"
                )
                fed.loaded.handle(BindDone(order.pod.uid))
                bound_ns += fed.feed("Pod", [line])
    yield "pod bound", (bound_ns, max(len(node_by_name), 1))
    running = [
        served.pod(planned_by_name[name], "running", node=node, change="MODIFIED")
        for name, node in node_by_name.items()
    ]
    yield "pod running", fed.feed_all("Pod", running)


def _others(fed: FedMachine) -> Iterator[tuple[str, tuple[int, int]]]:
    """Feed pods of other schedulers and node status updates; yield CPU nanoseconds and number of each event."""
    scene, served = fed.loaded.scene, fed.served
    spots = [node["metadata"]["name"] for node in scene.nodes]
    others = [
        Planned(templates.labelled("green"), "default", f"foreign-{index}", spots[index % len(spots)])
        for index in range(_N_OTHERS)
    ]
    yield "other pod added", fed.feed_all("Pod", [served.pod(pod, "running") for pod in others])
    gone = [served.pod(pod, "running", change="DELETED") for pod in others]
    yield "other pod deleted", fed.feed_all("Pod", gone)
    reports = [_reported(node, 1) for node in scene.nodes[:_N_OTHERS]]
    yield "node status", fed.feed_all("Node", [served.object(node, change="MODIFIED") for node in reports])


def _reported(node: Json, minute: int) -> Json:
    """Return the watch line of a status update of the node."""
    conditions = [
        {
            "type": kind,
            "status": "True" if kind == "Ready" else "False",
            "lastHeartbeatTime": f"2026-01-01T00:{minute:02}:00Z",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "reason": f"Kubelet{kind}",
            "message": "kubelet reports",
        }
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    images = [{"names": [f"registry.example/image-{n}:v1"], "sizeBytes": 10_000_000 + n} for n in range(10)]
    return {**node, "status": {**node["status"], "conditions": conditions, "images": images}}
