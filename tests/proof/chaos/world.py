"""Actions of users, kubelets and other schedulers, drawn from a seed and the state of the cluster."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence

from scheduler.sandbox.devcluster.kinds import JsonObject
from tests.proof.chaos.happenings import (
    AddBudget,
    AddNamespace,
    AddNode,
    AddPod,
    AddPriorityClass,
    BindByStranger,
    Change,
    Remove,
    WorldEvent,
)
from tests.proof.chaos.journal import is_terminal, key_of, node_of
from tests.proof.chaos.shapes import NAIVE, POLITE, PRIORITY_CLASSES, PROTECTED, SHAPES
from tests.support import build

ZONES = ("a", "b", "c")
NAMESPACES = ("red", "blue", "green")
N_NODES = 7
#: Deletion stops at so few: without room nothing is scheduled.
_MIN_NODES = 4
_MAX_PODS = 70


#: What may happen, and how often.
Actions = tuple[tuple[int, Callable[[], list[WorldEvent]]], ...]


class World:
    """
    A small cluster in motion.

    Args:
        schedulers: the schedulerNames of pods, ours and others'; a name may be listed twice.
        is_ranked: whether there are PriorityClasses and PodDisruptionBudgets.
    """

    #: Share of runs in which all is mended when the faults end.
    mends = 0.5
    #: Factors of the frequency of actions in a run.
    mixture: tuple[float, ...] = (0, 1, 1, 3)

    def __init__(
        self,
        objects: Callable[[str], list[JsonObject]],
        chance: random.Random,
        schedulers: Sequence[str],
        shapes: Sequence[str] = tuple(SHAPES),
        *,
        is_ranked: bool = False,
    ) -> None:
        self._objects, self._chance, self._schedulers = objects, chance, schedulers
        self._is_ranked = is_ranked
        self._n_pods = 0
        actions = self._frequencies()
        self._actions = [do for _, do in actions]
        # Every run has its own weights: an action that is rare in most runs is frequent, or alone, in some.
        self._weights = [weight * chance.choice(self.mixture) for weight, _ in actions]
        self._weights[0] = actions[0][0]
        self._shapes = shapes
        self._shape_weights = [chance.choice(self.mixture) + 0.1 for _ in self._shapes]
        #: The pods that kubelets have found ports for, by UID.
        self._admitted: set[str] = set()
        #: The newest pods, which are being scheduled about now.
        self._newest: deque[str] = deque(maxlen=5)

    def _frequencies(self) -> Actions:
        """Return what may happen, the creation of pods first, and how often in the mean."""
        actions: Actions = (
            (40, self._create_pod), (16, self._delete_pod), (6, self._recreate_pod), (6, self._relabel_pod),
            (6, self._relabel_node), (4, self._remove_node), (9, self._return_node), (4, self._cordon_node),
            (3, self._taint_node), (3, self._resize_node), (1, self._remove_namespace),
            (4, self._return_namespace), (3, self._relabel_namespace), (6, self._finish_pod), (4, self._ungate_pod),
            (8, self._end_terminating),
        )  # fmt: skip
        if not self._is_ranked:
            return actions
        return (*actions, (20, self._end_terminating), (6, self._change_budget), (3, self._return_budget))

    def found(self) -> list[WorldEvent]:
        """Return the happenings that make the initial cluster."""
        return [
            *(self._new_namespace(name) for name in NAMESPACES),
            *(self._new_node(number) for number in range(N_NODES)),
            *(self._found_ranks() if self._is_ranked else ()),
        ]

    def _found_ranks(self) -> list[WorldEvent]:
        return [
            *(
                AddPriorityClass(name, value, "Never" if name == POLITE else "PreemptLowerPriority")
                for name, value in PRIORITY_CLASSES.items()
            ),
            *(self._new_budget(f"{namespace}/{app}") for namespace in NAMESPACES for app in PROTECTED),
        ]

    def draw(self) -> list[WorldEvent]:
        """Return the next happenings, at one moment; none if there is no object for them."""
        return self._chance.choices(self._actions, self._weights)[0]()

    def draw_last(self) -> list[WorldEvent]:
        """Return one happening that may make room."""
        actions = (
            self._delete_pod, self._finish_pod, self._relabel_pod, self._relabel_node, self._cordon_node,
            self._taint_node, self._resize_node, self._return_node, self._return_namespace, self._relabel_namespace,
            self._ungate_pod, self._end_terminating,
        )  # fmt: skip
        return self._chance.choice(actions)()

    def draw_stranger(self) -> list[WorldEvent]:
        """Return a bind by the naive scheduler of a pod that is mostly its own, to any node."""
        pods = [
            pod
            for pod in self._objects("Pod")
            if not node_of(pod) and (pod["spec"]["schedulerName"] == NAIVE or self._chance.random() < 0.03)
        ]
        nodes = self._objects("Node")
        if not pods or not nodes:
            return []
        node = str(self._chance.choice(nodes)["metadata"]["name"])
        return [BindByStranger(key_of(self._chance.choice(pods)), node)]

    def mend(self) -> list[WorldEvent]:
        """Return happenings that restore every node, so that many pods are left to place when the faults end."""
        wanted = {"spec": {"unschedulable": None, "taints": None}}
        return [
            *self._missing_nodes(),
            *(Change("Node", key_of(node), wanted) for node in self._objects("Node")),
        ]

    def calm(self) -> list[WorldEvent]:
        """Return what follows within a second once the faults are over: with priorities, terminating pods end."""
        pods = self._objects("Pod") if self._is_ranked else ()
        return [Remove("Pod", key_of(pod)) for pod in pods if pod["metadata"].get("deletionTimestamp")]

    def refuse_pods(self) -> list[WorldEvent]:
        """
        Return the failure of pods whose host port another pod of the node has: no kubelet starts them.

        Where two pods have one port, Kubernetes' dry run takes it for free once one of them leaves, and evicts pods for
        others that fit no better then.
        """
        bound = [pod for pod in self._objects("Pod") if node_of(pod) and not is_terminal(pod)]
        bound.sort(key=lambda pod: pod["metadata"]["uid"] not in self._admitted)
        taken: set[tuple[str, int]] = set()
        refused: list[WorldEvent] = []
        for pod in bound:
            wanted = {(node_of(pod), port) for port in _host_ports(pod)}
            if wanted & taken:
                refused.append(Change("Pod", key_of(pod), {"status": {"phase": "Failed"}}, "status"))
            else:
                taken |= wanted
                self._admitted.add(pod["metadata"]["uid"])
        return refused

    def _missing_nodes(self) -> list[WorldEvent]:
        there = {node["metadata"]["name"] for node in self._objects("Node")}
        return [self._new_node(number) for number in range(N_NODES) if f"n{number}" not in there]

    # Pods.

    def _some(self, kind: str, fits: Callable[[JsonObject], object] = bool) -> JsonObject | None:
        found = [one for one in self._objects(kind) if fits(one)]
        return self._chance.choice(found) if found else None

    def _some_pod(self) -> JsonObject | None:
        """Return one of the newest pods, or any."""
        newest = self._newest if self._chance.random() < 0.5 else ()
        return self._some("Pod", lambda one: key_of(one) in newest) or self._some("Pod")

    def _some_shape(self) -> str:
        return self._chance.choices(self._shapes, self._shape_weights)[0]

    def _create_pod(self) -> list[WorldEvent]:
        if len(self._objects("Pod")) >= _MAX_PODS:
            return self._delete_pod()
        # Deployments bring several at once.
        shape, count = self._some_shape(), self._chance.choice((1, 1, 2, 3, 5))
        namespace = self._chance.choice(NAMESPACES)
        created: list[WorldEvent] = []
        for _ in range(count):
            self._n_pods += 1
            created.append(self._new_pod(f"{namespace}/p{self._n_pods}", shape))
        return created

    def _new_pod(self, key: str, shape: str) -> AddPod:
        scheduler = self._chance.choice(self._schedulers)
        self._newest.append(key)
        return AddPod(key, shape, scheduler, gated=self._chance.random() < 0.06)

    def _delete_pod(self) -> list[WorldEvent]:
        if (pod := self._some_pod()) is None:
            return []
        return [Remove("Pod", key_of(pod), self._chance.choice((0, 0, 30)))]

    def _recreate_pod(self) -> list[WorldEvent]:
        """Return the deletion of a pod and the creation of another of the same name, as a StatefulSet does."""
        if (pod := self._some_pod()) is None:
            return []
        key = key_of(pod)
        return [Remove("Pod", key), self._new_pod(key, self._some_shape())]

    def _relabel_pod(self) -> list[WorldEvent]:
        if (pod := self._some_pod()) is None:
            return []
        app = self._chance.choice([app for app, _ in SHAPES.values()])
        return [Change("Pod", key_of(pod), {"metadata": {"labels": {"app": app}}})]

    def _finish_pod(self) -> list[WorldEvent]:
        if (pod := self._some("Pod", node_of)) is None:
            return []
        phase = self._chance.choice(("Running", "Running", "Succeeded", "Failed"))
        return [Change("Pod", key_of(pod), {"status": {"phase": phase}}, "status")]

    def _ungate_pod(self) -> list[WorldEvent]:
        if (pod := self._some("Pod", lambda one: one["spec"].get("schedulingGates"))) is None:
            return []
        return [Change("Pod", key_of(pod), {"spec": {"schedulingGates": None}})]

    def _end_terminating(self) -> list[WorldEvent]:
        """Return the end of a terminating pod."""
        pod = self._some("Pod", lambda one: one["metadata"].get("deletionTimestamp"))
        return [Remove("Pod", key_of(pod))] if pod else []

    # Budgets.

    def _new_budget(self, key: str) -> AddBudget:
        return AddBudget(key, self._chance.choice((0, 0, 1, 2)))

    def _change_budget(self) -> list[WorldEvent]:
        if (budget := self._some("PodDisruptionBudget")) is None:
            return []
        allowed = self._chance.choice((0, 0, 1, 2))
        return [
            Change(
                "PodDisruptionBudget", key_of(budget), {"status": {"disruptionsAllowed": allowed}}, "status"
            )
        ]

    def _return_budget(self) -> list[WorldEvent]:
        there = {key_of(one) for one in self._objects("PodDisruptionBudget")}
        keys = [f"{namespace}/{app}" for namespace in NAMESPACES for app in PROTECTED]
        missing = [key for key in keys if key not in there]
        return [self._new_budget(self._chance.choice(missing))] if missing else []

    # Nodes.

    def _new_node(self, number: int) -> AddNode:
        cpu = str(self._chance.choice((3, 4, 6) if self._is_ranked else (4, 6, 8, 12)))
        return AddNode(f"n{number}", cpu, ZONES[number % len(ZONES)], "ssd" if number % 2 else None)

    def _return_node(self) -> list[WorldEvent]:
        missing = self._missing_nodes()
        return [self._chance.choice(missing)] if missing else []

    def _remove_node(self) -> list[WorldEvent]:
        node = self._some("Node")
        if node is None or len(self._objects("Node")) <= _MIN_NODES:
            return []
        name = key_of(node)
        gone: list[WorldEvent] = [Remove("Node", name)]
        # Pod garbage collection after the deletion of a node, which is sometimes slow.
        if self._chance.random() < 0.5:
            gone += [Remove("Pod", key_of(pod)) for pod in self._objects("Pod") if node_of(pod) == name]
        return gone

    def _edit_node(self, change: JsonObject, subresource: str | None = None) -> list[WorldEvent]:
        node = self._some("Node")
        return [Change("Node", key_of(node), change, subresource)] if node else []

    def _relabel_node(self) -> list[WorldEvent]:
        zone, disk = self._chance.choice((*ZONES, None)), self._chance.choice(("ssd", "hdd", None))
        return self._edit_node({"metadata": {"labels": {build.ZONE: zone, "disk": disk}}})

    def _cordon_node(self) -> list[WorldEvent]:
        return self._edit_node({"spec": {"unschedulable": self._chance.choice((True, None, None, None))}})

    def _taint_node(self) -> list[WorldEvent]:
        effect = self._chance.choice(("NoSchedule", "PreferNoSchedule", "NoExecute"))
        taints = self._chance.choice(([{"key": "busy", "effect": effect}], None, None))
        return self._edit_node({"spec": {"taints": taints}})

    def _resize_node(self) -> list[WorldEvent]:
        cpu = str(self._chance.choice((2, 4, 8, 12)))
        return self._edit_node({"status": {"allocatable": {"cpu": cpu}}}, "status")

    # Namespaces.

    def _new_namespace(self, name: str) -> AddNamespace:
        return AddNamespace(name, self._chance.choice(("x", "y")))

    def _remove_namespace(self) -> list[WorldEvent]:
        namespace = self._some("Namespace", lambda one: one["metadata"]["name"] in NAMESPACES)
        return [Remove("Namespace", key_of(namespace))] if namespace else []

    def _return_namespace(self) -> list[WorldEvent]:
        there = {one["metadata"]["name"] for one in self._objects("Namespace")}
        missing = [name for name in NAMESPACES if name not in there]
        return [self._new_namespace(self._chance.choice(missing))] if missing else []

    def _relabel_namespace(self) -> list[WorldEvent]:
        namespace = self._some("Namespace", lambda one: one["metadata"]["name"] in NAMESPACES)
        if namespace is None:
            return []
        team = self._chance.choice(("x", "y", None))
        return [Change("Namespace", key_of(namespace), {"metadata": {"labels": {"team": team}}})]


def _host_ports(pod: JsonObject) -> list[int]:
    ports = (port for container in pod["spec"]["containers"] for port in container.get("ports") or ())
    return [port["hostPort"] for port in ports if port.get("hostPort")]
