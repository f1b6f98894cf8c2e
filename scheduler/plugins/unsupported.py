"""
Unsupported: a pod that needs what is not built yet, or is too large to be decided on, is refused in words instead of
being placed wrongly or holding up all others.

Those are volumes that depend on a node (claims, and the claims made for ephemeral volumes) and resource claims. Not
an upstream plugin: there VolumeBinding, VolumeZone, VolumeRestrictions, NodeVolumeLimits and DynamicResources would
look at such a pod. What is too large: `model.limits`. Part of every profile, before all others, so that the refusal is
the whole message.
"""

from __future__ import annotations

from typing import ClassVar, Final

from scheduler.framework.interface import PodContext, PreFiltered
from scheduler.framework.memo import MemoBySpec
from scheduler.framework.status import SKIP, Status, unresolvable
from scheduler.model.pods import Pod
from scheduler.state.snapshot import Snapshot

NAME: Final = "Unsupported"


class Unsupported:
    """The last resort of honesty. No event lifts its refusal: what a pod needs cannot change."""

    name = NAME
    extension_points: ClassVar = ("preFilter",)

    def __init__(self) -> None:
        self._refusal = MemoBySpec(refusal)

    def prefilter(self, context: PodContext, _snapshot: Snapshot) -> PreFiltered:
        """Skip a pod that needs only what is built."""
        return self._refusal.of(context.pod) or SKIP


def refusal(pod: Pod) -> Status | None:
    """Everything unsupported that the pod's spec names, in one sentence; None where there is nothing."""
    spec = pod.spec
    if spec.exceeded_limits is not None:
        return unresolvable(
            f"pod has {spec.exceeded_limits}, which is more than affinity-scheduler decides on"
        )
    needs = [
        *(f'persistentVolumeClaim "{name}"' for name in spec.claims),
        *(f'ephemeral volume "{name}"' for name in spec.ephemeral_volumes),
        *(f'resourceClaim "{name}"' for name in spec.resource_claims),
    ]
    if not needs:
        return None
    listed = " and ".join(filter(None, (", ".join(needs[:-1]), needs[-1])))
    return unresolvable(f"pod needs {listed}, which affinity-scheduler does not support yet")
