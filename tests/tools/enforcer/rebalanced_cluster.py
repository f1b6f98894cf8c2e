"""A scheduler and an enforcer that moves pods, on one cluster."""

from __future__ import annotations

import json
import random
from typing import Any

from scheduler.daemon.assembly.profiles import build_profiles
from scheduler.daemon.settings.loading import default_settings
from scheduler.engine.model.instructions import Bind
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.stimuli import BindDone, NodeSeen, PodGone, PodSeen
from scheduler.engine.state.cluster import ClusterState
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.tools.enforcer.instructions import Move
from scheduler.tools.enforcer.limits import RebalanceLimits
from scheduler.tools.enforcer.rebalancing import Rebalancer
from tests.support import build
from tests.support.build import Json
from tests.support.driving import Driver
from tests.support.json_cluster import decoded


class RebalancedCluster:
    """
    Attributes:
        driver: the scheduler.
        state: the cluster as the enforcer knows it.
        pods: as the API server has them, by uid.
        moves: those that were carried out.
    """

    def __init__(self, limits: RebalanceLimits) -> None:
        self.driver, self.state = Driver(), ClusterState()
        profiles = build_profiles(default_settings(), ClusterView(self.state))
        self.rebalancer = Rebalancer(
            self.state, profiles, random.Random(1), limits, is_movable=lambda _: True
        )
        self.pods: dict[str, Json] = {}
        self.moves: list[Move] = []

    def node(self, name: str, **keywords: Any) -> None:
        """Show both the node (keywords of build.node)."""
        node = decode_node(json.dumps(build.node(name, **keywords)).encode())
        self.driver.handle(NodeSeen(node))
        self.state.upsert_node(node)

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
