"""An enforcer on a tiny cluster, driven by API objects as JSON."""

from __future__ import annotations

import json
from typing import Any

from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.annotations import AFFINITY, GRACE
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.engine.model.stimuli import NodeSeen, ObjectSeen, PodGone, PodSeen
from scheduler.engine.state.audit import differences
from scheduler.tools.enforcer.instructions import EnforcerInstruction, Evict, EvictionResult, ReportViolation
from scheduler.tools.enforcer.limits import EvictionLimits
from scheduler.tools.enforcer.machine import Enforcer
from tests.support import build
from tests.support.build import Json

ENFORCED = "requiredDuringSchedulingRequiredDuringExecution"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"

#: No limits, and anti-affinity is enforced at once.
FREE = EvictionLimits(
    evictions=10_000, evictions_per_namespace=10_000, evictions_per_node=10_000, max_share=1.0, settle_s=0.0
)


def rules(
    near: list[Json] | None = None, far: list[Json] | None = None, *, which: str = ENFORCED
) -> dict[str, Any]:
    """Return an affinity annotation with these terms."""
    made: dict[str, Any] = {}
    if near:
        made["podAffinity"] = {which: near}
    if far:
        made["podAntiAffinity"] = {which: far}
    return made


class Driver:
    """Feeds an enforcer stimuli made from JSON, with a clock that the test sets."""

    def __init__(self, limits: EvictionLimits = FREE, **settings: Any) -> None:
        settings = {"is_movable": lambda _: True, "acts": True, **settings}
        self.enforcer = Enforcer(limits, **settings)
        self.now_s = 1000.0
        self.pods: dict[str, Json] = {}
        self._decoder = PodDecoder()
        self._version = 0

    def __repr__(self) -> str:
        """Describe the pods, for Hypothesis."""
        metadata = [{**pod["metadata"], **pod["spec"]} for pod in self.pods.values()]
        told = ("name", "namespace", "labels", "nodeName", "priority", "creationTimestamp", "annotations")
        return "\n".join(json.dumps({key: each.get(key) for key in told}) for each in metadata)

    def node(self, name: str, **keywords: Any) -> None:
        self.enforcer.apply(NodeSeen(decode_node(json.dumps(build.node(name, **keywords)).encode())))

    def namespace(self, name: str, **labels: str) -> None:
        document = json.dumps(build.namespace(name, labels=labels)).encode()
        self.enforcer.apply(ObjectSeen(KINDS["Namespace"].decode(document)))

    def pod(
        self,
        name: str,
        node: str,
        annotation: Json | None = None,
        *,
        grace: str | None = None,
        created: str = "",
        priority: int = 0,
        **keywords: Any,
    ) -> str:
        """Let the pod run on the node. Return its UID."""
        document = build.pod(name, node=node, spec={"priority": priority}, phase="Running", **keywords)
        self._version += 1
        annotations = {AFFINITY: json.dumps(annotation)} if annotation else {}
        if grace is not None:
            annotations[GRACE] = grace
        document["metadata"] |= {
            "annotations": annotations,
            "resourceVersion": str(self._version),
            "creationTimestamp": created or None,
        }
        self.see(document)
        return str(document["metadata"]["uid"])

    def see(self, document: Json) -> None:
        """Deliver a watch event of the pod."""
        uid = document["metadata"]["uid"]
        if not document["metadata"].get("deletionTimestamp"):
            self.pods[uid] = document
        self.enforcer.apply(PodSeen(self._decoder.decode(json.dumps(document).encode())))

    def relabel(self, uid: str, **labels: str) -> None:
        document = self.pods[uid]
        document["metadata"]["labels"] = labels
        self.see(document)

    def gone(self, uid: str) -> None:
        self.pods.pop(uid, None)
        self.enforcer.apply(PodGone(uid))

    def check(self, after_s: float = 0.0) -> list[EnforcerInstruction]:
        self.now_s += after_s
        return self.enforcer.check(self.now_s)

    def evicted(self, uid: str) -> None:
        """Report a successful eviction and the deletion of the pod."""
        self.enforcer.on_eviction_result(uid, EvictionResult.EVICTED, self.now_s)
        self.gone(uid)

    def enforce(self, after_s: float = 0.0, *, limit: int = 1000) -> list[str]:
        """Evict until no more pod is evicted. Return the pods' names in order."""
        names: list[str] = []
        orders = self.check(after_s)
        while orders := [each for each in orders if isinstance(each, Evict)]:
            (order,) = orders
            assert isinstance(order, Evict)
            names.append(order.pod.name)
            assert len(names) <= limit, "enforcement does not end"
            self.evicted(order.pod.uid)
            orders = self.check()
        return names

    def found(self, after_s: float = 0.0) -> list[ReportViolation]:
        return [each for each in self.check(after_s) if isinstance(each, ReportViolation)]

    def audit(self) -> None:
        assert differences(self.enforcer.state) == []
