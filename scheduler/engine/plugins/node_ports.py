"""
NodePorts: a host port can be held once per node, protocol and address.

The address 0.0.0.0 conflicts with every address; any other, including `::`, only with itself and 0.0.0.0. Ports of app
containers and sidecars count, ports of other init containers do not.

Source: plugins/nodeports/node_ports.go, framework/types.go HostPortInfo.CheckConflict (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import ClassVar, Final

import numpy as np

from scheduler.engine.framework.events import (
    Action,
    ClusterEventWithHint,
    Hint,
    Resource,
    freed_node,
    queue_if,
)
from scheduler.engine.framework.explaining import ExplainContext, PluginExplanation, Repair, removal_of_all
from scheduler.engine.framework.interface import (
    FilterPlugin,
    PodContext,
    PreFiltered,
    PreFilterExtensions,
    RuleFilter,
)
from scheduler.engine.framework.status import SKIP, Status, unschedulable
from scheduler.engine.model.pods import HostPort, MemoBySpec, Pod
from scheduler.engine.state.cluster_view import ClusterView

PORT_TAKEN: Final = unschedulable("node(s) didn't have free ports for the requested pod ports")

#: Conflicts with every address. Only compared: nothing listens on it.
ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104  (see above)


class NodePorts(FilterPlugin):
    """Refuses nodes on which a host port of the pod is taken."""

    name = "NodePorts"
    extension_points: ClassVar = ("preFilter", "filter")

    def __init__(self) -> None:
        self._wanted = MemoBySpec(lambda pod: pod.spec.host_ports)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return deleted pods that held a port, and new nodes."""
        return (
            ClusterEventWithHint(Resource.POD, Action.DELETE, _hint_after_pod_deletion),
            ClusterEventWithHint(Resource.NODE, Action.ADD),
        )

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Skip a pod that wants no host port."""
        wanted = self._wanted.of(context.pod)
        if not wanted:
            return SKIP
        mask = np.ones(view.n_rows, dtype=np.bool_)
        for port in wanted:
            mask[_rows_taken(port, view)] = False
        return RuleFilter(
            view.n_rows, (mask, PORT_TAKEN), trial=partial(_PortTrial, wanted, view), needs_pods=False
        )

    def explain(self, context: ExplainContext) -> PluginExplanation:
        """Name the ports of the pod that are taken; propose to remove the pods that hold them."""
        rows_by_port = {
            _port_text(port): frozenset(_rows_taken(port, context.view))
            for port in self._wanted.of(context.pod)
        }

        def taken(row: int) -> str:
            return ", ".join(text for text, rows in rows_by_port.items() if row in rows)

        return PluginExplanation(
            where=lambda rows: [f"host port {taken(row)} in use" for row in rows.tolist()],
            repair=Repair(removal_of_all(context, partial(_conflict, context.pod))),
        )


class _PortTrial(PreFilterExtensions):
    """
    The ports of one node that conflict with wanted ones, while pods come and go there.

    Quirk of kubernetes 1.36 (HostPortInfo is a set): of two pods that hold the same port, the first to go frees it.
    """

    def __init__(self, wanted: Sequence[HostPort], view: ClusterView, row: int) -> None:
        self._wanted = wanted
        self._held = {port for placed in view.state.placed_on(row) for port in self._conflicting(placed.pod)}
        #: Pods of the node that are counted out, and others that are counted in, by UID.
        self._out: set[str] = set()
        self._in: dict[str, set[HostPort]] = {}

    def count(self, pod: Pod, delta: int) -> None:
        """Count the pod's ports in or out."""
        conflicting = self._conflicting(pod)
        if delta < 0 and self._in.pop(pod.uid, None) is None:
            self._out.add(pod.uid)
            self._held -= conflicting
        elif delta > 0 and pod.uid in self._out:
            self._out.remove(pod.uid)
            self._held |= conflicting
        elif delta > 0:
            self._in[pod.uid] = conflicting

    def refusal(self) -> Status | None:
        """Return the refusal as long as a port conflicts."""
        return PORT_TAKEN if self._held or any(self._in.values()) else None

    def _conflicting(self, pod: Pod) -> set[HostPort]:
        return {
            held for held in pod.spec.host_ports if any(_overlap(wanted, held) for wanted in self._wanted)
        }


def _port_text(port: HostPort) -> str:
    address = "" if port.ip == ANY_ADDRESS else f"{port.ip}:"
    return f"{address}{port.port}/{port.protocol}"


def _rows_taken(port: HostPort, view: ClusterView) -> list[int]:
    """Return the rows on which a port is held that conflicts with this one."""
    held = view.nodes.ports.get((port.protocol, port.port))
    return conflicting_rows(port.ip, held) if held else []


def conflicting_rows(wanted_ip: str, held: Mapping[int, Collection[str]]) -> list[int]:
    """Return the rows of `held` (addresses of one port by row) with an address that conflicts with the wanted one."""
    if wanted_ip == ANY_ADDRESS:
        return list(held)
    return [row for row, ips in held.items() if ANY_ADDRESS in ips or wanted_ip in ips]


def _hint_after_pod_deletion(pod: Pod, old: Pod | None, _new: Pod | None) -> Hint:
    """Source: node_ports.go, isSchedulableAfterPodDeleted (kubernetes 1.36)."""
    return queue_if(old is not None and freed_node(old) and _conflict(pod, old))


def _conflict(pod: Pod, running: Pod) -> bool:
    held = running.spec.host_ports
    return any(_overlap(wanted, port) for wanted in pod.spec.host_ports for port in held)


def _overlap(wanted: HostPort, held: HostPort) -> bool:
    if (wanted.protocol, wanted.port) != (held.protocol, held.port):
        return False
    return wanted.ip == held.ip or ANY_ADDRESS in (wanted.ip, held.ip)
