"""What users and kubelets do: pods, nodes and namespaces come, change, go and return, drawn from a seed."""

from __future__ import annotations

import random
from typing import Any

from scheduler.devcluster.kinds import NAMESPACE, NODE, POD, JsonObject
from scheduler.devcluster.patches import PatchType
from scheduler.devcluster.status import StatusError
from scheduler.devcluster.store import Store
from tests import build
from tests.build import Json
from tests.chaos.journal import Journal, node_of

ZONES = ("a", "b", "c")
NAMESPACES = ("red", "blue", "green")
NAIVE = "naive-scheduler"
_N_NODES = 7
#: So few are never made fewer: where nothing fits nothing can go wrong.
_MIN_NODES = 4
_MAX_PODS = 70


class World:
    """
    A small cluster in motion.

    Args:
        store: where everything is written, as users do whose API server never fails.
        journal: is told what is done.
        chance: draws what to do next.
        schedulers: names that pods ask for, ours and others'.
    """

    def __init__(
        self, store: Store, journal: Journal, chance: random.Random, schedulers: tuple[str, ...]
    ) -> None:
        self._store, self._journal, self._chance = store, journal, chance
        self._schedulers = schedulers
        self._n_pods = 0
        self._gone: list[tuple[str, str]] = []
        self._actions = (
            (40, self._create_pod), (14, self._delete_pod), (5, self._recreate_pod), (5, self._relabel_pod),
            (6, self._relabel_node), (4, self._remove_node), (9, self._return_node), (4, self._cordon_node),
            (3, self._taint_node), (3, self._resize_node), (1, self._remove_namespace),
            (4, self._return_namespace), (3, self._relabel_namespace), (6, self._finish_pod), (4, self._ungate_pod),
            (8, self._end_terminating),
        )  # fmt: skip

    def found(self) -> None:
        """The cluster that a run begins with."""
        for name in NAMESPACES:
            self._return_named_namespace(name)
        for number in range(_N_NODES):
            self._add_node(number)

    def act(self) -> None:
        """One thing happens."""
        weights = [weight for weight, _ in self._actions]
        action = self._chance.choices([do for _, do in self._actions], weights)[0]
        try:
            if did := action():
                self._journal.tell(did)
        except StatusError as error:
            # A user is told no as well: the namespace is terminating, the name is taken.
            self._journal.tell(f"refused: {action.__name__} {error}")

    def mend(self) -> None:
        """Every node is there again and takes pods, so that much is left to place when the faults end."""
        while self._return_node():
            pass
        for node in self._store.list(NODE)[0]:
            self._store.patch(
                NODE, "", node["metadata"]["name"], {"spec": {"unschedulable": None, "taints": None}}
            )

    # Pods.

    def _pods(self) -> list[JsonObject]:
        return self._store.list(POD)[0]

    def _any_pod(self) -> JsonObject | None:
        pods = self._pods()
        return self._chance.choice(pods) if pods else None

    def _create_pod(self) -> str:
        if len(self._pods()) >= _MAX_PODS:
            return self._delete_pod()
        # Deployments bring several at once.
        shape, count = self._chance.randrange(len(SHAPES)), self._chance.choice((1, 1, 2, 3, 5))
        namespace = self._chance.choice(NAMESPACES)
        for _ in range(count):
            self._n_pods += 1
            self._put_pod(namespace, f"p{self._n_pods}", shape)
        return f"{count} pods p{self._n_pods} {SHAPES[shape][0]} in {namespace}"

    def _put_pod(self, namespace: str, name: str, shape: int) -> None:
        app, settings = SHAPES[shape]
        scheduler = self._chance.choice(self._schedulers)
        settings = dict(settings)
        cpu = settings.pop("cpu", "1")
        containers = [build.container(requests={"cpu": cpu}, host_ports=settings.pop("host_ports", ()))]
        spec: dict[str, Any] = {"schedulerName": scheduler}
        if self._chance.random() < 0.06:
            spec["schedulingGates"] = [{"name": "wait"}]
        if scheduler == NAIVE:
            # It binds without looking, so nothing may depend on what it does.
            settings = {}
        pod = build.pod(
            name, namespace=namespace, labels={"app": app}, containers=containers, spec=spec, **settings
        )
        pod["metadata"].pop("uid")
        pod.pop("status")
        self._store.create(POD, namespace, pod)

    def _delete_pod(self) -> str:
        pod = self._any_pod()
        if pod is None:
            return ""
        meta = pod["metadata"]
        grace_s = self._chance.choice((0, 0, 30))
        self._store.delete(POD, meta["namespace"], meta["name"], grace_period_s=grace_s)
        self._gone.append((meta["namespace"], meta["name"]))
        return f"delete pod {meta['namespace']}/{meta['name']} with grace {grace_s}"

    def _recreate_pod(self) -> str:
        """At once under the name of one that is deleted now, as a StatefulSet does."""
        pod = self._any_pod()
        if pod is None:
            return ""
        meta = pod["metadata"]
        self._store.delete(POD, meta["namespace"], meta["name"], grace_period_s=0)
        self._put_pod(meta["namespace"], meta["name"], self._chance.randrange(len(SHAPES)))
        return f"recreate pod {meta['namespace']}/{meta['name']}"

    def _relabel_pod(self) -> str:
        pod = self._any_pod()
        if pod is None:
            return ""
        meta = pod["metadata"]
        app = self._chance.choice([shape[0] for shape in SHAPES])
        self._store.patch(POD, meta["namespace"], meta["name"], {"metadata": {"labels": {"app": app}}})
        return f"relabel pod {meta['namespace']}/{meta['name']} app={app}"

    def _finish_pod(self) -> str:
        placed = [pod for pod in self._pods() if node_of(pod)]
        if not placed:
            return ""
        meta = self._chance.choice(placed)["metadata"]
        phase = self._chance.choice(("Running", "Running", "Succeeded", "Failed"))
        self._store.patch(
            POD, meta["namespace"], meta["name"], {"status": {"phase": phase}}, subresource="status"
        )
        return f"pod {meta['namespace']}/{meta['name']} is {phase}"

    def _ungate_pod(self) -> str:
        gated = [pod for pod in self._pods() if pod["spec"].get("schedulingGates")]
        if not gated:
            return ""
        meta = self._chance.choice(gated)["metadata"]
        self._store.patch(
            POD,
            meta["namespace"],
            meta["name"],
            {"spec": {"schedulingGates": None}},
            patch_type=PatchType.MERGE,
        )
        return f"ungate pod {meta['namespace']}/{meta['name']}"

    def _end_terminating(self) -> str:
        """The kubelet is done with a pod."""
        ending = [pod for pod in self._pods() if pod["metadata"].get("deletionTimestamp")]
        if not ending:
            return ""
        meta = self._chance.choice(ending)["metadata"]
        self._store.delete(POD, meta["namespace"], meta["name"], grace_period_s=0)
        return f"pod {meta['namespace']}/{meta['name']} has ended"

    # Nodes.

    def _any_node(self) -> JsonObject | None:
        nodes = self._store.list(NODE)[0]
        return self._chance.choice(nodes) if nodes else None

    def _add_node(self, number: int) -> None:
        labels = {build.ZONE: ZONES[number % len(ZONES)]}
        if number % 2:
            labels["disk"] = "ssd"
        room = {"cpu": str(self._chance.choice((3, 4, 6, 8)))}
        self._store.create(NODE, "", build.node(f"n{number}", labels=labels, allocatable=room))

    def _return_node(self) -> str:
        there = {node["metadata"]["name"] for node in self._store.list(NODE)[0]}
        missing = [number for number in range(_N_NODES) if f"n{number}" not in there]
        if not missing:
            return ""
        number = self._chance.choice(missing)
        self._add_node(number)
        return f"node n{number} returns"

    def _remove_node(self) -> str:
        node = self._any_node()
        if node is None or len(self._store.list(NODE)[0]) <= _MIN_NODES:
            return ""
        name = node["metadata"]["name"]
        self._store.delete(NODE, "", name)
        # What garbage collection does with pods of a node that is gone; sometimes it is slow.
        if self._chance.random() < 0.5:
            for pod in self._pods():
                if node_of(pod) == name:
                    meta = pod["metadata"]
                    self._store.delete(POD, meta["namespace"], meta["name"], grace_period_s=0)
        return f"node {name} vanishes"

    def _edit_node(self, change: JsonObject, *, subresource: str | None = None) -> str:
        node = self._any_node()
        if node is None:
            return ""
        name = node["metadata"]["name"]
        self._store.patch(NODE, "", name, change, subresource=subresource)
        return f"node {name} {change}"

    def _relabel_node(self) -> str:
        zone, disk = self._chance.choice((*ZONES, None)), self._chance.choice(("ssd", "hdd", None))
        return self._edit_node({"metadata": {"labels": {build.ZONE: zone, "disk": disk}}})

    def _cordon_node(self) -> str:
        return self._edit_node({"spec": {"unschedulable": self._chance.choice((True, None, None, None))}})

    def _taint_node(self) -> str:
        taint = {
            "key": "busy",
            "effect": self._chance.choice(("NoSchedule", "PreferNoSchedule", "NoExecute")),
        }
        return self._edit_node({"spec": {"taints": self._chance.choice(([taint], None, None))}})

    def _resize_node(self) -> str:
        cpu = str(self._chance.choice((2, 4, 6, 8)))
        return self._edit_node({"status": {"allocatable": {"cpu": cpu}}}, subresource="status")

    # Namespaces.

    def _remove_namespace(self) -> str:
        name = self._chance.choice(NAMESPACES)
        if self._store.find(NAMESPACE, "", name) is None:
            return ""
        self._store.delete(NAMESPACE, "", name)
        return f"namespace {name} vanishes"

    def _return_namespace(self) -> str:
        missing = [name for name in NAMESPACES if self._store.find(NAMESPACE, "", name) is None]
        if not missing:
            return ""
        name = self._chance.choice(missing)
        self._return_named_namespace(name)
        return f"namespace {name} returns"

    def _return_named_namespace(self, name: str) -> None:
        labels = {"team": self._chance.choice(("x", "y"))}
        self._store.create(NAMESPACE, "", build.namespace(name, labels=labels))

    def _relabel_namespace(self) -> str:
        name, team = self._chance.choice(NAMESPACES), self._chance.choice(("x", "y", None))
        if self._store.find(NAMESPACE, "", name) is None:
            return ""
        self._store.patch(NAMESPACE, "", name, {"metadata": {"labels": {"team": team}}})
        return f"namespace {name} team={team}"


_TEAM_X = build.selector("team=x")


def _away(key: str, *labels: str, everywhere: Json | None = None) -> Json:
    """Settings of a pod that keeps away from others, of its namespace or of those that are selected."""
    term = build.term(key, build.selector(*labels), namespace_selector=everywhere)
    return {"affinity": build.affinity(anti_required=[term])}


def _near(key: str, *labels: str, everywhere: Json | None = None) -> Json:
    term = build.term(key, build.selector(*labels), namespace_selector=everywhere)
    return {"affinity": build.affinity(required=[term])}


#: What pods are like: their `app` label, and settings of `build.pod` with `cpu` and `host_ports`.
SHAPES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("plain", {}),
    ("plain", {"cpu": "500m"}),
    ("big", {"cpu": "3"}),
    ("alone", _away(build.HOSTNAME, "app=alone")),
    ("zonal", _away(build.ZONE, "app=zonal", everywhere=_TEAM_X)),
    ("hermit", _away(build.HOSTNAME, "app in plain,web", everywhere={})),
    ("web", _near(build.ZONE, "app=web")),
    ("follower", _near(build.HOSTNAME, "app=web")),
    ("follower", _near(build.ZONE, "app=web", everywhere=_TEAM_X)),
    ("even", {"spread": [build.spread(build.ZONE, build.selector("app=even"))]}),
    ("even", {"spread": [build.spread(build.HOSTNAME, build.selector("app=even"))]}),
    ("picky", {"node_selector": {"disk": "ssd"}}),
    ("tolerant", {"tolerations": [build.toleration("busy")]}),
    ("port", {"host_ports": ("8080",)}),
)
