"""
Random lives of clusters, drawn by seed before they are played: pods decided in a row, and all that happens in between.

More than 16 rows may move between two pods, and more than 32 classes of them take turns: so many are kept. Steps name
what they are about, so that a life with some of them left out is a life too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from tests.engine.core.drawn_objects import NAMESPACES, Cluster, Templates, drawn_configuration, pod_of
from tests.engine.plugins.lives import Applied, Deleted
from tests.support.build import Json


class Decided(NamedTuple):
    """A pod of a template is decided, and is on its node from then on if it `is_assumed`."""

    name: str
    template: int
    is_assumed: bool = True


class Confirmed(NamedTuple):
    """The API server has an assumed pod on its node."""

    name: str


class Forgotten(NamedTuple):
    """An assumed pod was not bound."""

    name: str


class Changed(NamedTuple):
    """A pod that is on a node has other metadata, or is on another node."""

    name: str
    metadata: Json
    node: str | None = None


class Swept(NamedTuple):
    """What nothing uses any more is dropped."""


Step = Applied | Deleted | Decided | Confirmed | Forgotten | Changed | Swept


@dataclass(frozen=True, slots=True)
class Life:
    """What pods are made of, and what happens."""

    config: Json | None
    templates: list[Json]
    steps: list[Step]


def drawn(seed: int) -> Life:
    """Return the life with this seed."""
    chance = Random(seed)
    cluster = Cluster(chance)
    templates = Templates(chance)
    config = drawn_configuration(chance)
    made = [templates.draw() for _ in range(chance.choice([1, 2, 3, 5, 8, 36]))]
    steps = [*cluster.beginning(), *_Course(chance, cluster, templates, made).steps()]
    return Life(config, made, steps)


class _Course:
    """What happens, in order."""

    def __init__(self, chance: Random, cluster: Cluster, templates: Templates, made: list[Json]) -> None:
        self._chance = chance
        self._cluster = cluster
        self._templates = templates
        self._made = made
        self._n_pods = 0
        #: Pods that may be there: where the life finds no node for them they are not.
        self._pods: list[str] = []
        self._spaces: dict[str, str] = {}

    def steps(self) -> Iterator[Step]:
        chance = self._chance
        for _ in range(chance.choice([10, 20, 40])):
            kind = chance.random()
            if kind < 0.35:
                yield from self._row(chance.randrange(len(self._made)), chance.choice([2, 5, 30]))
            elif kind < 0.55:
                yield from self._turns()
            elif kind < 0.65:
                yield from self._busy()
            else:
                yield from self._happening()
            if len(self._pods) > 6 * self._cluster.n_nodes:
                yield from self._deleted(len(self._pods) // 2)

    def _row(self, template: int, n: int) -> Iterator[Step]:
        for _ in range(n):
            yield from self._decided(template)

    def _turns(self) -> Iterator[Step]:
        """Decide pods of some templates in turn, sometimes of more templates than caches hold."""
        chance = self._chance
        some = chance.sample(range(len(self._made)), min(len(self._made), chance.choice([2, 3, 5, 40])))
        for _ in range(chance.choice([2, 4])):
            for template in some:
                yield from self._decided(template)

    def _busy(self) -> Iterator[Step]:
        """Decide pods of one template while other pods come and go."""
        chance = self._chance
        template = chance.randrange(len(self._made))
        for _ in range(30):
            for _ in range(chance.choice([0, 0, 1, 3])):
                yield from self._deleted(1) if chance.random() < 0.5 else self._placed(1)
            yield from self._decided(template)

    def _decided(self, template: int) -> Iterator[Step]:
        """Decide one pod. Mostly it is bound; its bind may also fail, or end after another pod is decided."""
        chance = self._chance
        name = self._named("w", self._made[template]["metadata"]["namespace"])
        fate = chance.random()
        if fate < 0.1:
            yield Decided(name, template, is_assumed=False)
        yield Decided(name, template)
        if fate < 0.2:
            yield Decided(f"{name}-like", template, is_assumed=False)
        yield Forgotten(name) if 0.15 < fate < 0.25 else Confirmed(name)

    def _placed(self, n: int, on: str | None = None) -> Iterator[Step]:
        """Place pods as another scheduler would: rarely on an unknown node, or with rules that no pod had before."""
        chance = self._chance
        for _ in range(n):
            template = chance.choice(self._made) if chance.random() < 0.95 else self._templates.draw()
            name = self._named("o", template["metadata"]["namespace"])
            node = on or (self._cluster.any_node() if chance.random() < 0.99 else "gone")
            yield Applied(pod_of(template, name, node))

    def _named(self, prefix: str, space: str) -> str:
        self._n_pods += 1
        name = f"{prefix}{self._n_pods}"
        self._pods.append(name)
        self._spaces[name] = space
        return name

    def _deleted(self, n: int) -> Iterator[Step]:
        for name in self._chance.sample(self._pods, min(n, len(self._pods))):
            self._pods.remove(name)
            yield Deleted("Pod", self._spaces.pop(name), name)

    def _changed(self, n: int) -> Iterator[Step]:
        """Change some pods: other labels, terminating, or moved to another node."""
        chance, apps = self._chance, self._templates.apps
        for name in chance.sample(self._pods, min(n, len(self._pods))):
            kind = chance.random()
            if kind < 0.5:
                app = chance.choice(apps)
                yield Changed(name, {"labels": chance.choice([{}, {"app": app}, {"app": app, "v": "1"}])})
            elif kind < 0.9:
                yield Changed(name, {"deletionTimestamp": "2026-01-01T00:00:00Z"})
            else:
                yield Changed(name, {}, self._cluster.any_node())

    def _happening(self) -> Iterator[Step]:
        chance, cluster = self._chance, self._cluster
        few = chance.choice([1, 1, 2, 5])
        kind = chance.random()
        if kind < 0.25:
            yield from self._placed(chance.choice([few, 15, 17, 31, 33, 40]))
        elif kind < 0.35:
            # Many pods on one node, which may be gone before the next decision.
            n = chance.choice([2, 5, 40])
            yield from self._placed(n, cluster.any_node())
            if chance.random() < 0.7:
                for name in self._pods[-n:]:
                    self._pods.remove(name)
                    yield Deleted("Pod", self._spaces.pop(name), name)
        elif kind < 0.55:
            yield from self._deleted(chance.choice([few, 14, 17, 35]))
        elif kind < 0.6:
            yield from self._deleted(len(self._pods))
        elif kind < 0.8:
            yield from self._changed(few)
        elif kind < 0.93:
            for _ in range(few):
                yield cluster.node(chance.randrange(cluster.n_nodes))
        elif kind < 0.95:
            yield Deleted("Node", None, cluster.any_node())
        elif kind < 0.97:
            yield cluster.space(chance.choice(NAMESPACES))
        elif kind < 0.985:
            yield cluster.service()
        else:
            yield Swept()
