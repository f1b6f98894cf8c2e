"""A cluster in motion in which most pods come in groups, which grow, shrink and change how many they need."""

from __future__ import annotations

from scheduler.engine.model.pod_groups import GROUP, MIN_COUNT
from scheduler.sandbox.devcluster.kinds import JsonObject
from tests.proof.chaos.groups import group_of
from tests.proof.chaos.happenings import AddPod, Change, Remove, WorldEvent
from tests.proof.chaos.journal import key_of, node_of
from tests.proof.chaos.shapes import NAIVE
from tests.proof.chaos.world import NAMESPACES, World

#: Shapes of which several fit into the cluster.
GROUP_SHAPES = ("plain", "small", "alone", "web", "follower", "zone follower", "picky", "big", "zonal")
_MAX_PODS = 60


class GroupWorld(World):
    """As `World`; a group's members are of one shape or two, and of one scheduler."""

    _n_groups = 0

    def _create_pod(self) -> list[WorldEvent]:
        what = self._chance.random()
        if what < 0.25 or len(self._objects("Pod")) >= _MAX_PODS:
            return super()._create_pod()
        return self._grow() if what < 0.5 else self._new_group()

    def _new_group(self) -> list[WorldEvent]:
        """Return a new group: as many members as it needs, or more or fewer of them."""
        self._n_groups += 1
        count = self._chance.choice((2, 3, 4, 5))
        shapes = [self._some_shape()] * count
        if self._chance.random() < 0.3:
            shapes[self._chance.randrange(count)] = self._some_shape()
        min_count = max(1, count + self._chance.choice((0, 0, 0, -1, 1)))
        scheduler = self._chance.choice([one for one in self._schedulers if one != NAIVE])
        namespace, group = self._chance.choice(NAMESPACES), f"g{self._n_groups}"
        return [self._member(namespace, shape, scheduler, group, min_count) for shape in shapes]

    def _member(
        self, namespace: str, shape: str, scheduler: str, group: str, min_count: int, name: str = ""
    ) -> AddPod:
        self._n_pods += 1
        key = f"{namespace}/{name or f'p{self._n_pods}'}"
        self._newest.append(key)
        return AddPod(key, shape, scheduler, self._chance.random() < 0.04, group, min_count)

    def _like(self, pod: JsonObject, name: str = "") -> AddPod:
        """Return a new member of the pod's group."""
        labels = pod["metadata"]["labels"]
        scheduler, namespace = pod["spec"]["schedulerName"], pod["metadata"]["namespace"]
        shape = self._some_shape()
        return self._member(namespace, shape, scheduler, labels[GROUP], int(labels[MIN_COUNT]), name)

    def _grow(self) -> list[WorldEvent]:
        pod = self._some("Pod", group_of)
        return self._new_group() if pod is None else [self._like(pod)]

    def _recreate_pod(self) -> list[WorldEvent]:
        pod = self._some("Pod", group_of)
        if pod is None:
            return super()._recreate_pod()
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        return [Remove("Pod", f"{namespace}/{name}"), self._like(pod, name)]

    def _relabel_pod(self) -> list[WorldEvent]:
        """Return another minimum of a group, a member that leaves it, or another label of a pod."""
        pod, what = self._some("Pod", group_of), self._chance.random()
        if pod is None or what < 0.4:
            return super()._relabel_pod()
        if what < 0.6:
            return [_labelled(pod, {GROUP: None, MIN_COUNT: None})]
        members = [one for one in self._objects("Pod") if group_of(one) == group_of(pod)]
        min_count = str(self._chance.randrange(1, len(members) + 2))
        return [_labelled(one, {MIN_COUNT: min_count}) for one in members]

    def _delete_pod(self) -> list[WorldEvent]:
        """Return the end of a pod, of the members of a group that wait, or of a whole group."""
        pod, what = self._some("Pod", group_of), self._chance.random()
        if pod is None or what < 0.6:
            return super()._delete_pod()
        members = [one for one in self._objects("Pod") if group_of(one) == group_of(pod)]
        return [Remove("Pod", key_of(one)) for one in members if what < 0.8 or not node_of(one)]


def _labelled(pod: JsonObject, labels: dict[str, str | None]) -> Change:
    return Change("Pod", key_of(pod), {"metadata": {"labels": labels}})
