"""The nodes that refuse a pod with claims: what was found on each of them, for its explanation."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.engine.framework.explaining import ExplainContext
from scheduler.engine.framework.status import Status
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.devices import DeviceId
from scheduler.engine.plugins.dynamic_resources.device_findings import DeviceInspection, NodeFindings
from scheduler.engine.plugins.dynamic_resources.filtering import DeviceFilter
from scheduler.engine.plugins.dynamic_resources.inputs import TargetNode
from scheduler.engine.state.devices import Devices


class RefusedNodes:
    """Looks at each node once."""

    def __init__(
        self, context: ExplainContext, device_filter: DeviceFilter, inspection: DeviceInspection
    ) -> None:
        self.context, self.filter = context, device_filter
        self._inspection = inspection
        self._by_row: dict[int, NodeFindings] = {}

    def findings(self, row: int) -> NodeFindings:
        """Return what the claims find on the row's node."""
        findings = self._by_row.get(row)
        if findings is None:
            findings = self._by_row[row] = self._look(row)
        return findings

    def _look(self, row: int) -> NodeFindings:
        node = self.context.view.node_at(row)
        if node is None:
            return NodeFindings()
        claims = self.filter.claims_at(node)
        if isinstance(claims, Status):
            return NodeFindings(error=claims.message)
        return self._inspection.look(TargetNode(node.name, node.labels), claims)


def claims_of(device: DeviceId, devices: Devices) -> Iterator[ResourceClaim]:
    """Yield the claims that have the device."""
    for key in devices.allocated.claims_of(device):
        claim = devices.claim(key)
        if claim is not None:
            yield claim
