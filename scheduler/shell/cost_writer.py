"""Writes costs of deletion. A failure of the server is returned as text; the caller retries later."""

from __future__ import annotations

from typing import Final

from scheduler.enforcing.deletion_costs import WriteDeletionCost
from scheduler.errors import ApiError
from scheduler.kube.client import KubeClient
from scheduler.kube.enforcer_requests import annotate_pod
from scheduler.model.pods import DELETION_COST, WRITTEN_DELETION_COST

_TIMEOUT_S: Final = 10.0


async def write_cost(client: KubeClient, write: WriteDeletionCost) -> str:
    """Write the cost, and that it is ours. Return why it failed, '' if it did not; one request."""
    pod = write.pod
    annotations = {DELETION_COST: write.cost, WRITTEN_DELETION_COST: write.cost}
    request = annotate_pod(pod.namespace, pod.name, pod.uid, pod.resource_version, annotations)
    try:
        await client.request(request, timeout_s=_TIMEOUT_S)
    except ApiError as error:
        return str(error)
    return ""
