"""
Random groups with required affinity and anti-affinity, each with a small cluster of its own in which it has places.

That it has them is proved by trying every order of the members and every node, with the reference's plugins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.reference.cluster import Cluster
from tests.reference.pod_groups import Group
from tests.reference.question import Object
from tests.support import build
from tests.support.build import HOSTNAME, Json

RACK: Final = "example.com/rack"
#: The label of the nodes of a case.
CASE: Final = "example.com/case"
_APPS: Final = ("x", "y")

#: What places need: pods of one kind, of several, or of several of which one is placed before the pods that it needs.
ALIKE, UNLIKE, MUTUAL = "members alike", "unlike members", "members that need each other"
CLASSES: Final = (ALIKE, UNLIKE, MUTUAL)


@dataclass(frozen=True, slots=True)
class Case:
    """A group of `members`, all of which have places; `nodes` and members name no namespace, scheduler and group."""

    name: str
    of_class: str
    nodes: list[Json]
    members: list[Json]

    @property
    def namespace(self) -> str:
        """Return the namespace of its members."""
        return self.name


class _InOrder(Group):
    """A group of which no member may be placed before the pods that its affinity selects."""

    def _before_company(self, _pod: Object, _left: list[Object]) -> frozenset[str]:
        return frozenset()


class _Chance(Random):
    """Draws clusters that are hardly large enough."""

    def node(self, case: str, index: int) -> Json:
        labels = {CASE: case, RACK: f"{case}-{self.choice(('a', 'a', 'b'))}"}
        room = {"cpu": self.choice(("1", "2", "2", "3")), "memory": "8Gi", "pods": "10"}
        return build.node(f"{case}-n{index}", labels=labels, allocatable=room)

    def _term(self) -> Json:
        return build.term(self.choice((RACK, RACK, HOSTNAME)), build.selector(f"app={self.choice(_APPS)}"))

    def template(self) -> Json:
        rules = self.choice(((1, 0), (1, 0), (0, 1), (1, 1), (2, 1)))
        near, apart = ([self._term() for _ in range(n)] for n in rules)
        return {
            "labels": {"app": self.choice(_APPS)},
            "affinity": build.affinity(required=near, anti_required=apart),
            "containers": [build.container(requests={"cpu": self.choice(("500m", "1", "1", "2"))})],
        }


def cases(n: int, seed: int) -> Iterator[Case]:
    """Yield `n` groups that fit, as many of each class. About 30 ms for each one that is tried."""
    left = {one: n // len(CLASSES) + (index < n % len(CLASSES)) for index, one in enumerate(CLASSES)}
    number = 0
    while any(left.values()):
        number += 1
        case = _drawn(f"case-{number}", _Chance(f"{seed} {number}"))
        if case is not None and left[case.of_class]:
            left[case.of_class] -= 1
            yield case


def _drawn(name: str, chance: _Chance) -> Case | None:
    """Return a case; None if its members have no places."""
    nodes = [chance.node(name, index) for index in range(chance.choice((3, 4, 4, 5)))]
    templates = [chance.template() for _ in range(chance.choice((1, 2, 2, 3)))]
    n_members = chance.choice((3, 4, 4))
    members = [
        build.pod(f"m{index}", **templates[index % len(templates)], node_selector={CASE: name})
        for index in range(n_members)
    ]
    cluster = Cluster()
    for node in nodes:
        cluster.apply(node)
    by_name = {one["metadata"]["name"]: one for one in members}
    if Group(cluster, by_name).most(n_members) < n_members:
        return None
    in_order = _InOrder(cluster, by_name).most(n_members) == n_members
    of_class = MUTUAL if not in_order else ALIKE if len(templates) == 1 else UNLIKE
    return Case(name, of_class, nodes, members)
