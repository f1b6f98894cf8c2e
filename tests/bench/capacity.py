"""
Memory and start-up of the core behind its watches in a separate process, from the first byte to the first decision.

`python -m tests.bench.capacity NODES PODS templates|own-labels` prints one line of JSON.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Final, Literal

import msgspec

from scheduler.engine.model.instructions import Bind
from scheduler.engine.model.stimuli import CycleDue
from tests.bench import templates
from tests.bench.bytes_level import FedMachine
from tests.bench.measuring import peak_bytes, resident_bytes, spread_us
from tests.bench.scene import N_APPLICATIONS, Scene, Size
from tests.bench.shapes import Shape
from tests.bench.templates import Planned
from tests.support import build

#: Pods of 2,000 controllers, or the same with a label of its own on every pod.
Kind = Literal["templates", "own-labels"]

_ZONES: Final = ("zone-a", "zone-b", "zone-c")
_N_DECISIONS: Final = 200


class CapacityResult(msgspec.Struct, frozen=True):
    """
    `start_s`: CPU from the first byte of the lists to the first decision, of which `first_ms` is that decision.

    Memory is of the whole process, interpreter and libraries included, while pods are being decided.
    """

    kind: str
    n_nodes: int
    n_running: int
    start_s: float
    first_ms: float
    decision_p50_us: float
    decision_p99_us: float
    resident_mib: float
    peak_mib: float


def measure_capacity(n_nodes: int, n_running: int, kind: Kind) -> CapacityResult:
    """Run `capacity_here` in a fresh process; raise RuntimeError if it fails."""
    command = [sys.executable, "-m", "tests.bench.capacity", str(n_nodes), str(n_running), kind]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"capacity {kind}: {done.stderr.splitlines()[-1:]}")
    return msgspec.json.decode(done.stdout, type=CapacityResult)


def capacity_here(n_nodes: int, n_running: int, kind: Kind) -> CapacityResult:
    """Load this process with nodes and pods, then decide about further pods of a controller."""
    scene = _scene(n_nodes, kind)
    fed = FedMachine(scene)
    spent_ns = fed.feed_all("Namespace", map(fed.served.object, scene.namespaces))[0]
    spent_ns += fed.feed_all("Node", map(fed.served.object, scene.nodes))[0]
    running = (fed.served.pod(pod, "running") for pod in _running(scene, n_running, kind))
    spent_ns += fed.feed_all("Pod", running)[0]
    spent_ns += fed.feed("Pod", [fed.served.bookmark("Pod")])
    spent_ns += fed.feed_measured()[0]
    fed.loaded.settle()
    durations = []
    for _ in scene.measured:
        started_ns = time.process_time_ns()
        orders = fed.loaded.handle(CycleDue())
        durations.append(time.process_time_ns() - started_ns)
        if not any(isinstance(order, Bind) for order in orders):
            raise RuntimeError(f"a pod found no node: {orders}")
    after_first = spread_us(durations[1:])
    return CapacityResult(
        kind=kind,
        n_nodes=n_nodes,
        n_running=n_running,
        start_s=(spent_ns + durations[0]) / 1e9,
        first_ms=durations[0] / 1e6,
        decision_p50_us=after_first.p50,
        decision_p99_us=after_first.p99,
        resident_mib=resident_bytes(os.getpid()) / 2**20,
        peak_mib=peak_bytes(os.getpid()) / 2**20,
    )


def _scene(n_nodes: int, kind: Kind) -> Scene:
    measured = templates.application(0, own_labels=kind == "own-labels")
    shape = Shape(kind, "", measured, _N_DECISIONS, zones=_ZONES)
    return Scene(
        shape=shape,
        size=Size(n_nodes, _N_DECISIONS),
        nodes=[templates.node(index, zones=_ZONES) for index in range(n_nodes)],
        namespaces=[build.namespace("apps")],
        services=[],
        from_drivers=[],
        running=[],
        idle=[],
        measured=[Planned(measured, "apps", f"measured-{index}") for index in range(_N_DECISIONS)],
    )


def _running(scene: Scene, n_running: int, kind: Kind) -> Iterator[Planned]:
    """Yield pods, assigned to controllers and nodes in turn, one by one so that they take no memory."""
    own_labels = kind == "own-labels"
    applications = [
        scene.shape.measured,
        *(templates.application(index, own_labels=own_labels) for index in range(1, N_APPLICATIONS)),
    ]
    names = [node["metadata"]["name"] for node in scene.nodes]
    for index in range(n_running):
        # Coprime strides: no controller has two pods on one node before it has one on each.
        node = names[(index + index // N_APPLICATIONS * 61) % len(names)]
        yield Planned(applications[index % N_APPLICATIONS], "apps", f"p-{index}", node)


if __name__ == "__main__":
    n_nodes, n_running, kind = sys.argv[1:]
    found = capacity_here(int(n_nodes), int(n_running), "own-labels" if kind == "own-labels" else "templates")
    print(msgspec.json.encode(found).decode())
