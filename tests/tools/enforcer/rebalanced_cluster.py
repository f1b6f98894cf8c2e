"""A scheduler and an enforcer that moves pods, on one cluster, and a controller that makes evicted pods anew."""

from __future__ import annotations

import json
import random
from typing import Any

from scheduler.daemon.assembly.profiles import build_profiles
from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.model.instructions import Bind, ClearNomination, PatchCondition
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.stimuli import BindDone, NodeSeen, PodGone, PodSeen, TimePassed
from scheduler.engine.state.audit import differences
from scheduler.engine.state.batches import finished
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.tools.enforcer.instructions import Move
from scheduler.tools.enforcer.limits import RebalanceLimits
from scheduler.tools.enforcer.rebalancing import Rebalancer
from tests.support import build
from tests.support.build import Json
from tests.support.driving import NAME, Driver
from tests.support.json_cluster import decoded

STEP_S = 2.0


class RebalancedCluster:
    """
    Attributes:
        driver: the scheduler.
        state: the cluster as the enforcer knows it.
        pods: as the API server has them, by uid.
        moves: those that were carried out.
    """

    def __init__(self, limits: RebalanceLimits, *, movable: bool = True) -> None:
        self.driver, self.state = Driver(), ClusterState()
        profiles = build_profiles(default_settings(), ClusterView(self.state))
        self.rebalancer = Rebalancer(
            self.state, profiles, random.Random(1), limits, is_movable=lambda _: movable
        )
        self.pods: dict[str, Json] = {}
        self.moves: list[Move] = []

    def node(self, name: str, **keywords: Any) -> None:
        """Show both the node (keywords of build.node)."""
        node = decode_node(json.dumps(build.node(name, **keywords)).encode())
        self.driver.handle(NodeSeen(node))
        self.state.nodes.upsert(node)

    def pod(self, name: str, node: str = "", *, owner: str = "web", **more: Any) -> None:
        """Show both a pod, pending or on the node (keywords of build.pod)."""
        spec = {"schedulerName": NAME, **more.pop("spec", {})}
        controller = build.owned_by("ReplicaSet", owner) if owner else None
        phase = "Running" if node else "Pending"
        self.see(build.pod(name, node=node or None, phase=phase, owner=controller, spec=spec, **more))

    def see(self, pod: Json) -> None:
        """Show both the pod."""
        self.pods[pod["metadata"]["uid"]] = pod
        self.driver.handle(PodSeen(self.driver.decoded(pod)))
        seen = decoded(pod)
        if seen.node_name:
            self.state.upsert_pod(seen)
        self.rebalancer.waiting.apply(PodSeen(seen))

    def delete(self, uid: str) -> Json:
        """Return the pod, which is gone for both."""
        self.driver.handle(PodGone(uid))
        self.state.remove_pod(uid)
        return self.pods.pop(uid)

    def bind(self, bind: Bind) -> None:
        """Answer the bind, and show the pod on its node."""
        pod = self.pods[bind.pod.uid]
        self.driver.handle(BindDone(bind.pod.uid))
        annotations = {**pod["metadata"].get("annotations", {}), **bind.annotations}
        metadata = {**pod["metadata"], "annotations": annotations}
        spec = {**pod["spec"], "nodeName": bind.node_name}
        self.see({**pod, "metadata": metadata, "spec": spec, "status": {"phase": "Running"}})

    def patch(self, uid: str, nominated: str | None, **status: list[Json]) -> None:
        """Write the status of the pod, and its nomination if one is given."""
        pod = self.pods[uid]
        nomination = {} if nominated is None else {"nominatedNodeName": nominated}
        self.see({**pod, "status": {**pod["status"], **status, **nomination}})

    def live(self, seconds: float) -> None:
        """Let time pass in steps: the scheduler runs its cycles, and the enforcer moves a pod if it finds one."""
        until_s = self.driver.now_s + seconds
        while self.driver.now_s < until_s:
            self.driver.now_s += STEP_S
            self.schedule()
            if (move := finished(self.rebalancer.check(self.driver.now_s))) is not None:
                self.carry_out(move)

    def schedule(self) -> None:
        """Carry out what the scheduler orders now."""
        for each in [*self.driver.handle(TimePassed()), *self.driver.cycles()]:
            if isinstance(each, Bind):
                self.bind(each)
            elif isinstance(each, PatchCondition):
                condition = build.unscheduled(each.message, reason=each.reason)
                self.patch(each.pod.uid, each.nominated_node_name, conditions=[condition])
            elif isinstance(each, ClearNomination):
                self.patch(each.pod.uid, "")

    def carry_out(self, move: Move) -> None:
        """Nominate and evict as the daemon does."""
        self.moves.append(move)
        for member, node_name in move.nominations:
            self.patch(member.uid, node_name)
        self.replace(self.delete(move.pod.uid))
        self.rebalancer.on_result(move, evicted=True, now_s=self.driver.now_s)

    def replace(self, evicted: Json) -> None:
        """Make the evicted pod anew at once."""
        name = f"{evicted['metadata']['name']}-new"
        spec = {key: value for key, value in evicted["spec"].items() if key != "nodeName"}
        metadata = {**evicted["metadata"], "name": name, "uid": f"uid-default-{name}"}
        self.see({**evicted, "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})

    def audit(self) -> None:
        self.driver.audit()
        assert differences(self.state) == []
