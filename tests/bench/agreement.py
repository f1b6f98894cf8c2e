"""
The timed decisions are right: each shape at a small size against the plain reference.

A run without a broken rule proves little, since pods that go to the emptiest nodes rarely meet. Here the reasons and
scores of every node are compared for each decision, so that a missing rule is found.
"""

from __future__ import annotations

from typing import Final

from tests.bench.loaded import SCHEDULER
from tests.bench.scene import Scene, Size, build_scene, room_for
from tests.bench.shapes import Shape
from tests.bench.templates import Planned
from tests.bench.volumes import claims_and_volumes
from tests.conformance.compare import decision_mismatches
from tests.conformance.product import ProductSubject
from tests.conformance.subject import ReferenceSubject
from tests.support.build import Json

#: Enough for a pod in each of the hundred namespaces that some shapes have.
_N_NODES: Final = 110
_N_DECISIONS: Final = 4
_N_IDLE: Final = 2


def disagreements(shape: Shape) -> list[str]:
    """Return the differences between the scene's decisions and the reference's, one line each."""
    n_pods = min(_N_DECISIONS, room_for(shape, _N_NODES))
    scene = build_scene(shape, Size(_N_NODES, n_pods, n_idle_max=_N_IDLE))
    subjects = (ReferenceSubject(None), ProductSubject(None))
    for one in _objects(scene):
        for subject in subjects:
            subject.apply(one)
    found: list[str] = []
    for planned in scene.measured:
        expected, got = (subject.evaluate(_pod(planned)) for subject in subjects)
        found += [f"{shape.name}: {mismatch}" for mismatch in decision_mismatches(expected, got)]
        if not expected.get("feasible"):
            return [*found, f"{shape.name}: {planned.name} fits on no node"]
        total = expected.get("total") or {}
        best = max(expected["feasible"], key=lambda node: (total.get(node, 0), node))
        for subject in subjects:
            subject.apply(_pod(planned, best))
    return found


def _objects(scene: Scene) -> list[Json]:
    pods = (_pod(planned, planned.node) for planned in (*scene.running, *scene.idle))
    storage = (*scene.from_drivers, *claims_and_volumes((*scene.running, *scene.measured)))
    return [*scene.namespaces, *scene.nodes, *scene.services, *storage, *pods]


def _pod(planned: Planned, node: str = "") -> Json:
    return planned.template.pod(planned.namespace, planned.name, node=node, scheduler=SCHEDULER)
