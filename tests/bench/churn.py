"""Churn during a run: nodes, large pods and services are created and deleted."""

from __future__ import annotations

import json
from typing import Final

from scheduler.engine.model.nodes import decode_node, decode_workload
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.stimuli import NodeGone, NodeSeen, ObjectGone, ObjectSeen, PodGone, PodSeen
from tests.bench import templates
from tests.bench.loaded import SCHEDULER, LoadedMachine
from tests.support import build

#: Upstream's churn recreates one of each every second; this many decisions stand for it.
_EVERY: Final = 250


class Churn:
    """Recreates a node, a service and a pod that is too large for any node."""

    def __init__(self, loaded: LoadedMachine) -> None:
        self._loaded = loaded
        self._round = 0
        self._uid = ""

    def after(self, n_decisions: int) -> None:
        """Run one round of churn for every 250 decisions."""
        while self._round * _EVERY < n_decisions:
            self._round += 1
            self._recreate()

    def _recreate(self) -> None:
        handle, name = self._loaded.handle, "churning"
        if self._uid:
            handle(PodGone(self._uid))
            handle(NodeGone(name))
            handle(ObjectGone("Service", f"default/{name}"))
        self._uid = f"uid-{name}-{self._round}"
        document = templates.large(priority=10).pod("default", name, scheduler=SCHEDULER)
        document["metadata"]["uid"] = self._uid
        handle(PodSeen(PodDecoder().decode(json.dumps(document).encode())))
        # Without room for pods, so every measured pod is placed on a node that stays.
        node = build.node(name, allocatable={"cpu": "4", "memory": "32Gi", "pods": "0"})
        handle(NodeSeen(decode_node(json.dumps(node).encode())))
        service = build.service(name, {"app": "nobody"})
        handle(ObjectSeen(decode_workload("Service", json.dumps(service).encode())))
