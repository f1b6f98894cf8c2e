"""
Unsupported: a pod that needs an unsupported feature, or whose spec is too large, is rejected with a clear message
instead of being placed wrongly or blocking other pods.

Unsupported are resource claims where the API server does not have resource.k8s.io/v1, or no plugin of the
configuration reads it. Not an upstream plugin. `engine.model.limits` has the limits of a spec. It is the first
plugin of every profile, so that its reason is the whole message.
"""

from __future__ import annotations

from typing import ClassVar

from scheduler.engine.framework.interface import FilterPlugin, PodContext, PreFiltered
from scheduler.engine.framework.status import SKIP, Status, unresolvable
from scheduler.engine.model.pods import PodSpec
from scheduler.engine.state.cluster_view import ClusterView


class Unsupported(FilterPlugin):
    """Rejects pods that need an unsupported feature. Only `DevicesServed` wakes them."""

    name = "Unsupported"
    extension_points: ClassVar = ("preFilter",)

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Skip a pod that needs only supported features."""
        return rejection(context.pod.spec, serves_claims=view.state.devices.is_served) or SKIP


def rejection(spec: PodSpec, *, serves_claims: bool) -> Status | None:
    """Return a status that names everything unsupported that the pod needs; None if there is nothing."""
    if spec.exceeded_limits is not None:
        return unresolvable(
            f"pod has {spec.exceeded_limits}, which is more than affinity-scheduler decides on"
        )
    needs = [] if serves_claims else [f'resourceClaim "{claim.name}"' for claim in spec.resource_claims]
    if not needs:
        return None
    listed = " and ".join(filter(None, (", ".join(needs[:-1]), needs[-1])))
    return unresolvable(f"pod needs {listed}, but affinity-scheduler reads no resource.k8s.io/v1 here")
