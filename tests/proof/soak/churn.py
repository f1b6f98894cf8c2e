"""
Rounds of a cluster's life whose names never repeat.

A round creates nodes, namespaces, label keys and values, selectors, topology keys, resources, taints, images, ports,
services and pods, puts them through everything that a scheduler meets, and deletes them. Only a small base stays,
whose pods are selected in every round.
"""

from __future__ import annotations

import json
from typing import Any

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.instructions import Bind
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import ObjectGone, ObjectSeen, PodSeen, SweepDue, TimePassed
from tests.support import build
from tests.support.build import Json
from tests.support.driving import NAME, Driver

_BASE_NODES = 4
_ROUND_NODES = 3
#: A selector that stays, because the base's pods declare it.
_BESIDE_WEB = build.affinity(preferred=[(1, build.term(build.ZONE, build.selector("app=web")))])
#: Longer than any state is kept after its last use.
_QUIET_S = 1_000.0


class Churn:
    """A machine and its rounds."""

    def __init__(self) -> None:
        self.driver = Driver()
        self._placed: list[Pod] = []
        self._pending: list[Pod] = []
        self.driver.namespace("default", team="base")
        for number in range(_BASE_NODES):
            self.driver.node(f"base-{number}", labels={build.ZONE: f"z{number % 2}"})
        for number in range(4):
            seen = self.driver.pod(f"base-{number}", labels={"app": "web"}, affinity=_BESIDE_WEB)
            self._bind(seen)
        self._placed.clear()

    def round(self, number: int) -> None:
        """Run one round."""
        self._begin(number)
        for index, document in enumerate(pods_of_round(number)):
            self._live(number, index, document)
        self._disturb(number)
        self._end(number)

    def _begin(self, number: int) -> None:
        driver = self.driver
        driver.namespace(f"ns-{number}", team=f"t{number}", **{f"only-{number}": "yes"})
        for index in range(_ROUND_NODES):
            driver.node(
                f"node-{number}-{index}",
                labels={build.ZONE: f"zone-{number}", f"rack.example/{number}": f"r{index}"},
                allocatable={f"example.com/device-{number}": "4"},
                taints=[f"taint-{number}=v:PreferNoSchedule"],
                images={f"image-{number}-{index}": 1 << 20},
            )
        service = build.service(f"svc-{number}", {"svc": f"s{number}"}, namespace=f"ns-{number}")
        driver.handle(ObjectSeen(KINDS["Service"].decode(json.dumps(service).encode())))

    def _live(self, number: int, index: int, document: dict[str, Any]) -> None:
        """Create a pod and bind it, let its kubelet reject it, or leave it pending."""
        seen = self.driver.pod(f"p-{number}-{index}", uid=f"u-{number}-{index}", **document)
        bound = self._bind(seen)
        if bound is None:
            self._pending.append(seen)
        elif index % 4 == 3:
            failed = build.pod(
                seen.name, namespace=seen.namespace, uid=seen.uid, node=bound.node_name, phase="Failed"
            )
            failed["spec"]["schedulerName"] = NAME
            failed["status"]["reason"] = "OutOfcpu"
            self.driver.handle(PodSeen(self.driver.decoded(failed)))
            self._placed.remove(bound)

    def _bind(self, seen: Pod) -> Pod | None:
        while self.driver.machine.has_work():
            for order in self.driver.cycle():
                if isinstance(order, Bind) and order.pod.uid == seen.uid:
                    bound = self.driver.confirm(seen, order.node_name)
                    self._placed.append(bound)
                    return bound
                if isinstance(order, Bind):
                    self._placed.append(self.driver.confirm(order.pod, order.node_name))
        return None

    def _disturb(self, number: int) -> None:
        """Change labels of running pods, nodes and the namespace; fail a bind; delete a node and keep its pods."""
        driver = self.driver
        for index, pod in enumerate(list(self._placed)):
            labels = {f"late-{number}": f"v{index}"}
            document = build.pod(
                pod.name, namespace=pod.namespace, uid=pod.uid, labels=labels, node=pod.node_name
            )
            document["spec"]["schedulerName"] = NAME
            driver.handle(PodSeen(driver.decoded(document)))
        driver.namespace(f"ns-{number}", team=f"t{number}", moved="yes")
        driver.node(
            f"node-{number}-0", labels={build.ZONE: f"other-{number}"}, taints=[f"t-{number}:NoSchedule"]
        )
        failing = driver.pod(f"failing-{number}", uid=f"failing-{number}")
        for order in driver.cycle():
            if isinstance(order, Bind):
                driver.fail_bind(order.pod, "refused")
        self._pending.append(failing)
        driver.lose_node(f"node-{number}-1")
        # Queueing hints get an event of each kind while pods wait.
        self._placed.append(
            driver.pod(f"theirs-{number}", uid=f"theirs-{number}", node="base-0", scheduler="other")
        )

    def _end(self, number: int) -> None:
        driver = self.driver
        for pod in (*self._placed, *self._pending):
            driver.lose(pod)
        self._placed.clear()
        self._pending.clear()
        for index in range(_ROUND_NODES):
            driver.lose_node(f"node-{number}-{index}")
        driver.handle(ObjectGone("Namespace", f"ns-{number}"))
        driver.handle(ObjectGone("Service", f"ns-{number}/svc-{number}"))
        for _ in range(4):
            driver.handle(SweepDue())
            while driver.machine.is_sweeping:
                driver.handle(SweepDue())
        driver.now_s += _QUIET_S
        for _ in range(3):
            driver.handle(TimePassed())


def pods_of_round(number: int) -> list[dict[str, Any]]:
    """Return the pods of a round: every rule that a pod can have, with names of this round only."""
    namespace = f"ns-{number}"
    rack, own = f"rack.example/{number}", {f"app-{number}": "web", "svc": f"s{number}"}
    mine = build.selector(f"app-{number}=web")
    web = build.selector("app=web")
    by_labels = build.selector(f"only-{number}")
    spread: list[Json] = [
        build.spread(rack, mine, taints_policy="Honor"),
        build.spread(build.ZONE, mine, soft=True),
        build.spread(f"nowhere.example/{number}", mine, soft=True),
    ]
    return [
        {"namespace": namespace, "labels": own},
        {
            "namespace": namespace,
            "labels": own,
            "affinity": build.affinity(required=[build.term(rack, mine)]),
        },
        {
            "namespace": namespace,
            "labels": own,
            "affinity": build.affinity(
                anti_required=[build.term(build.HOSTNAME, mine), build.term(f"gone.example/{number}", web)],
                preferred=[(5, build.term(rack, build.selector(f"x-{number} in a,b")))],
                anti_preferred=[
                    (5, build.term(rack, build.selector(f"!y-{number}"), namespace_selector=by_labels))
                ],
            ),
        },
        {"namespace": namespace, "labels": own, "spread": spread},
        # In the base's namespace, selecting the base's pods, with keys of this round.
        {
            "labels": {"app": "web"},
            "affinity": build.affinity(
                preferred=[(1, build.term(rack, web)), (2, build.term(f"absent.example/{number}", web))],
                anti_required=[build.term(rack, build.selector(f"none-{number}"))],
            ),
        },
        {
            "namespace": namespace,
            "affinity": build.affinity(
                node_required=[build.node_term(f"{rack} in r0,r1,r2")],
                node_preferred=[(3, build.node_term(f"other-{number}"))],
            ),
            "tolerations": [build.toleration(f"taint-{number}")],
            "containers": [
                build.container(
                    image=f"image-{number}-0",
                    requests={"cpu": "100m", f"example.com/device-{number}": "1"},
                    host_ports=[str(1024 + number % 60_000)],
                )
            ],
        },
        {"namespace": namespace, "node_selector": {f"never-{number}": "there"}},
        {
            "namespace": namespace,
            "containers": [build.container(requests={f"example.com/none-{number}": "1"})],
        },
        # Created with a node name: its requests count although no node has the resource.
        {
            "namespace": namespace,
            "node": "base-1",
            "containers": [build.container(requests={f"example.com/fancy-{number}": "7"})],
        },
        {"namespace": namespace, "gates": [f"gate-{number}"]},
    ]
