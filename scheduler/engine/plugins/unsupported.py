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
from scheduler.engine.framework.status import SKIP, unresolvable
from scheduler.engine.state.cluster_view import ClusterView


class Unsupported(FilterPlugin):
    """Rejects pods that need an unsupported feature. Only `DevicesServed` wakes them."""

    name = "Unsupported"
    extension_points: ClassVar = ("preFilter",)

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Skip a pod that needs only supported features; else name everything that is not."""
        spec = context.pod.spec
        if spec.exceeded_limits is not None:
            return unresolvable(
                f"pod has {spec.exceeded_limits}, which is more than affinity-scheduler decides on"
            )
        if view.state.devices.is_served or not spec.resource_claims:
            return SKIP
        *others, last = (f'resourceClaim "{claim.name}"' for claim in spec.resource_claims)
        listed = f"{', '.join(others)} and {last}" if others else last
        return unresolvable(f"pod needs {listed}, but affinity-scheduler reads no resource.k8s.io/v1 here")
