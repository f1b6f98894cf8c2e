"""No pod waits as unschedulable that a decision would place now: every event that helps wakes it."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.daemon.settings.loading import default_settings, parse_settings
from scheduler.engine.core.decide import ScheduleResult, decide
from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.instructions import Bind
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.stimuli import (
    BindDone,
    BindFailed,
    NodeGone,
    NodeSeen,
    ObjectGone,
    ObjectSeen,
    PodGone,
    PodSeen,
    TimePassed,
)
from scheduler.engine.queueing.queued_pod import SubQueue
from scheduler.engine.state.cluster_view import ClusterView
from tests.engine.plugins.lives import BEGINNINGS, CHANGES, CONFIGURATIONS, Applied, Deleted, pods
from tests.support.build import (
    HOSTNAME,
    ZONE,
    Json,
    affinity,
    configuration,
    node,
    pod,
    selector,
    service,
    spread,
    term,
)
from tests.support.driving import NAME, Driver, each_of

WEB = selector("app=web")


class _Life:
    """A machine that gets objects as from informers, and results of binds at once."""

    def __init__(self, config: Json | None) -> None:
        parsed = default_settings() if config is None else parse_settings(json.dumps(config), "config")
        self.driver = Driver(settings=parsed)
        self.scheduler_name = parsed.profiles[0].scheduler_name
        self._objects: dict[str, Json] = {}

    def tell(self, change: Applied | Deleted) -> None:
        if isinstance(change, Applied):
            self._apply(change.object)
        else:
            self._delete(*change)
        self._settle()

    def sleepers(self) -> list[str]:
        """Return the pods that wait for an event although a decision would place them."""
        machine, view = self.driver.machine, ClusterView(self.driver.state)
        profile = self.driver.profiles[self.scheduler_name]
        return [
            f"{waiting.pod.key} {sorted(waiting.unschedulable_plugins)}"
            for uid in self._objects
            if (waiting := machine.queue.get(uid)) is not None and waiting.sub_queue is SubQueue.UNSCHEDULABLE
            if isinstance(decide(waiting.pod, view, profile, random.Random(0)), ScheduleResult)
        ]

    def _apply(self, obj: Json) -> None:
        kind, data = obj["kind"], json.dumps(obj).encode()
        if kind == "Pod":
            self._see(obj)
        elif kind == "Node":
            self.driver.handle(NodeSeen(decode_node(data)))
        else:
            self.driver.handle(ObjectSeen(KINDS[kind].decode(data)))

    def _delete(self, kind: str, namespace: str | None, name: str) -> None:
        if kind == "Pod":
            for uid in [u for u, o in self._objects.items() if _named(o) == (namespace, name)]:
                del self._objects[uid]
                self.driver.handle(PodGone(uid))
            return
        key = f"{namespace}/{name}" if namespace else name
        self.driver.handle(NodeGone(name) if kind == "Node" else ObjectGone(kind, key))

    def _see(self, obj: Json) -> None:
        """Show the object; a pod with an existing name replaces the older pod."""
        uid = obj["metadata"]["uid"]
        for other in [u for u, o in self._objects.items() if u != uid and _named(o) == _named(obj)]:
            del self._objects[other]
            self.driver.handle(PodGone(other))
        known = self._objects.get(uid)
        if known is not None and not known["spec"].get("nodeName"):
            obj = _updated(known, obj)
        self._objects[uid] = obj
        ours = {**obj, "spec": {**obj["spec"], "schedulerName": self.scheduler_name}}
        self.driver.handle(PodSeen(self.driver.decoded(ours)))

    def _settle(self) -> None:
        """Run cycles until no pod is ready, a few times. Every third bind fails and its pod is deleted."""
        for n_cycles in range(12):
            self.driver.now_s += 20.0
            self.driver.handle(TimePassed())
            if not self.driver.machine.has_work():
                return
            for bind in each_of(self.driver.cycle(), Bind):
                if n_cycles % 3 == 2:
                    self.driver.handle(PodGone(bind.pod.uid))
                    self.driver.handle(BindFailed(bind.pod.uid, "not found"))
                else:
                    self.driver.handle(BindDone(bind.pod.uid))
                    bound = replace(
                        bind.pod, node_name=bind.node_name, resource_version=self.driver.next_version()
                    )
                    self.driver.handle(PodSeen(bound))


def _named(obj: Json) -> tuple[str, str]:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def _updated(old: Json, new: Json) -> Json:
    """
    Return `new` with the parts of a waiting pod's spec that the API server never changes: no event tells of them.

    It changes resources and the node, and adds tolerations. Source: ValidatePodUpdate in
    pkg/apis/core/validation/validation.go (kubernetes 1.36).
    """
    kept, asked = old["spec"], new["spec"]
    spec = {**kept, "nodeName": asked.get("nodeName")}
    earlier = kept.get("tolerations", [])
    spec["tolerations"] = earlier + [one for one in asked.get("tolerations", []) if one not in earlier]
    if len(kept["containers"]) == len(asked["containers"]):
        pairs = zip(kept["containers"], asked["containers"], strict=True)
        spec["containers"] = [{**before, "resources": after.get("resources", {})} for before, after in pairs]
    return {**new, "spec": spec}


@settings(max_examples=30, deadline=None)
@given(
    config=st.sampled_from(CONFIGURATIONS),
    beginning=BEGINNINGS,
    waiting=st.lists(pods(placed=False), min_size=1, max_size=3),
    changes=st.lists(CHANGES, min_size=1, max_size=12),
)
def test_a_pod_that_would_be_placed_is_never_left_asleep(
    config: Json | None, beginning: list[Applied], waiting: list[Json], changes: list[Applied | Deleted]
) -> None:
    life = _Life(config)
    for change in (*beginning, *map(Applied, waiting), *changes):
        life.tell(change)
        assert life.sleepers() == []
    life.driver.audit()


def test_a_new_node_wakes_a_pod_refused_by_anti_affinity_of_running_pods() -> None:
    """The waiting pod has no terms of its own: upstream's hint skips it."""
    life = _Life(None)
    shy = affinity(anti_required=[term(HOSTNAME, WEB)])
    life.tell(Applied(_node("a")))
    life.tell(Applied(pod("shy", node="a", affinity=shy, phase="Running")))
    life.tell(Applied(pod("web", labels={"app": "web"})))
    life.tell(Applied(_node("b")))
    assert life.driver.queue.get("uid-default-web") is None


@pytest.mark.parametrize("deleted", [Deleted("Service", "default", "s"), Deleted("Node", None, "b")])
def test_a_pod_is_woken_by_the_deletion_of_what_it_was_spread_by_or_over(deleted: Deleted) -> None:
    hard = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    life = _Life(
        configuration({"PodTopologySpread": {"defaultingType": "List", "defaultConstraints": [hard]}})
    )
    for made in (_node("a", zone="x"), _node("b", zone="y", cpu="0"), service("s", {"app": "web"})):
        life.tell(Applied(made))
    life.tell(Applied(pod("one", labels={"app": "web"}, node="a", phase="Running")))
    life.tell(Applied(pod("two", labels={"app": "web"}, cpu="1")))
    assert "PodTopologySpread" in life.driver.queued("uid-default-two").unschedulable_plugins
    life.tell(deleted)
    assert life.driver.queue.get("uid-default-two") is None


def _node(name: str, *, zone: str = "z", cpu: str = "4") -> Json:
    return node(name, labels={ZONE: zone}, allocatable={"cpu": cpu})


def test_a_pod_bound_elsewhere_frees_the_node_that_was_assumed_for_it(driver: Driver) -> None:
    """Another scheduler was faster; the pod that waited for the assumed pod's room has to be woken."""
    driver.node("a", allocatable={"cpu": "1"})
    one = driver.pod("one", cpu="1")
    driver.cycle()
    two = driver.pod("two", cpu="1")
    driver.cycle()
    driver.node("b", allocatable={"cpu": "0"})
    driver.update(one, node_name="b")
    driver.handle(BindFailed(one.uid, "already assigned"))
    driver.pass_time(20.0)
    assert [i.pod.uid for i in each_of(driver.cycle(), Bind)] == [two.uid]


@pytest.mark.parametrize("scheduler", [NAME, "another"])
def test_a_pod_that_is_shown_unassigned_again_frees_its_node(driver: Driver, scheduler: str) -> None:
    """The server was restored from a backup; it is about to end, and takes no node again."""
    driver.node("a", allocatable={"cpu": "1"})
    one = driver.pod("one", node="a", cpu="1", scheduler=scheduler)
    two = driver.pod("two", cpu="1")
    assert each_of(driver.cycle(), Bind) == []
    driver.update(one, node_name="", terminating=True)
    driver.pass_time(20.0)
    assert [i.pod.uid for i in each_of(driver.cycles(), Bind)] == [two.uid]


def test_a_pod_relabelled_during_its_bind_wakes_pods_that_its_old_labels_refused(driver: Driver) -> None:
    driver.node("a")
    one = driver.pod("one", labels={"app": "web"})
    driver.cycle()
    far = driver.pod("far", affinity=affinity(anti_required=[term(HOSTNAME, WEB)]))
    driver.cycle()
    driver.confirm(replace(one, labels={"app": "db"}), "a")
    driver.pass_time(20.0)
    assert [i.pod.uid for i in each_of(driver.cycle(), Bind)] == [far.uid]


def test_a_pod_that_starts_to_terminate_wakes_a_pod_refused_by_spread(driver: Driver) -> None:
    driver.node("a", labels={ZONE: "x"})
    driver.node("b", labels={ZONE: "y"}, allocatable={"cpu": "0"})
    even = [spread(ZONE, WEB)]
    old = driver.pod("old", labels={"app": "web"}, node="a")
    waits = driver.pod("new", labels={"app": "web"}, spread=even, cpu="1")
    driver.cycle()
    assert driver.queue.depths()["unschedulable"] == 1
    driver.update(old, terminating=True)
    driver.pass_time(20.0)
    assert [i.pod.uid for i in each_of(driver.cycle(), Bind)] == [waits.uid]
