"""Writes costs of deletion, one after the other, or logs them. What fails is tried again later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from scheduler.daemon.kube.client import KubeClient
from scheduler.daemon.kube.requests import MERGE, Request, escaped
from scheduler.daemon.loop.slices import in_pieces
from scheduler.engine.model.pods import DELETION_COST, WRITTEN_DELETION_COST, Pod
from scheduler.errors import ApiError
from scheduler.tools.enforcer.deletion_costs import COST_PERIOD_S, DeletionCosts, WriteDeletionCost
from scheduler.tools.enforcer.reports import EnforcementReporter

_TIMEOUT_S: Final = 10.0
#: How soon to look again whether this instance may act.
_ASK_AGAIN_S: Final = 1.0


def annotate_pod(pod: Pod, annotations: Mapping[str, str]) -> Request:
    """Return a request that annotates this pod; Conflict if it is not of this version any more."""
    metadata = {"uid": pod.uid, "resourceVersion": pod.resource_version, "annotations": annotations}
    path = f"/api/v1/namespaces/{escaped(pod.namespace)}/pods/{escaped(pod.name)}"
    return Request.writing("patch", path, {"metadata": metadata}, MERGE)


class CostWriter:
    """
    Attributes:
        next_s: when to look for costs again.
    """

    def __init__(
        self,
        costs: DeletionCosts,
        client: KubeClient,
        reports: EnforcementReporter,
        *,
        may_act: Callable[[], bool],
        now_s: Callable[[], float],
    ) -> None:
        """`may_act`: returns whether this instance leads, and knows the cluster. `now_s`: a monotonic clock."""
        self._costs, self._client, self._reports = costs, client, reports
        self._may_act, self._now_s = may_act, now_s
        self.next_s = now_s()
        self._writing: asyncio.Task[None] | None = None

    async def write(self, group: asyncio.TaskGroup) -> None:
        """
        Look, if it is time, which costs have changed; log them, or write them in a task of the group.

        Other tasks run between pieces of the search; the caller applies no event before its end.
        """
        now_s = self._now_s()
        if now_s < self.next_s:
            return
        if self._writing is not None or not self._may_act():
            self.next_s = now_s + _ASK_AGAIN_S
            return
        self.next_s = now_s + COST_PERIOD_S
        writes = await in_pieces(self._costs.check(now_s), now_s=self._now_s)
        if not self._costs.acts:
            for write in writes:
                self._reports.on_would_write_cost(write)
        elif writes:
            self._writing = group.create_task(self._write_each(writes), name="costs")

    def stop(self) -> None:
        """Write nothing more."""
        if self._writing is not None:
            self._writing.cancel()

    async def _write_each(self, writes: Sequence[WriteDeletionCost]) -> None:
        """Write each cost, with a mark that it is ours, in a request of its own."""
        for write in writes:
            if not self._may_act():
                self._costs.on_failed(write.pod.uid, self._now_s())
                continue
            annotations = {DELETION_COST: write.cost, WRITTEN_DELETION_COST: write.cost}
            problem = ""
            try:
                await self._client.request(annotate_pod(write.pod, annotations), timeout_s=_TIMEOUT_S)
            except ApiError as error:
                problem = str(error)
                self._costs.on_failed(write.pod.uid, self._now_s())
            self._reports.on_cost_written(write, problem)
        self._writing = None
