"""
Unsupported: a pod that needs an unsupported feature, or whose spec is too large, is rejected with a clear message
instead of being placed wrongly or blocking other pods.

Unsupported are resource claims, and PersistentVolumeClaims that wait for a node: nothing writes them yet. Not an
upstream plugin: there DynamicResources and VolumeBinding handle such a pod. `model.limits` has the limits of a spec. It
is the first plugin of every profile, so that its reason is the whole message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from scheduler.framework.events import Action, ClusterEventWithHint, Hint, Resource, never
from scheduler.framework.interface import PodContext, PreFiltered
from scheduler.framework.plugin_context import Claims, PluginContext
from scheduler.framework.status import SKIP, Status, unresolvable
from scheduler.model.pods import Pod, may_use_claim
from scheduler.model.volumes import PersistentVolumeClaim
from scheduler.state.snapshot import Snapshot
from scheduler.state.volumes import Volumes

NAME: Final = "Unsupported"

_DEFAULT: Final = PluginContext()


class Unsupported:
    """Rejects pods that need an unsupported feature."""

    name = NAME
    extension_points: ClassVar = ("preFilter",)

    def __init__(self, context: PluginContext = _DEFAULT) -> None:
        self._claims = context.claims

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return claims that may be bound now; nothing else that a pod needs can change."""
        changed, claim = Action.ADD | Action.UPDATE, Resource.PERSISTENT_VOLUME_CLAIM
        return (ClusterEventWithHint(claim, changed, _hint_after_claim_change, never),)

    def prefilter(self, context: PodContext, snapshot: Snapshot) -> PreFiltered:
        """Skip a pod that needs only supported features."""
        spec = context.pod.spec
        if not (spec.claim_volumes or spec.resource_claims or spec.exceeded_limits):
            return SKIP
        return rejection(context.pod, snapshot.volumes, self._claims) or SKIP


def rejection(pod: Pod, volumes: Volumes, claims: Claims) -> Status | None:
    """Return a status that names everything unsupported that the pod needs; None if there is nothing."""
    spec = pod.spec
    if spec.exceeded_limits is not None:
        return unresolvable(
            f"pod has {spec.exceeded_limits}, which is more than affinity-scheduler decides on"
        )
    needs = [
        *_rejected_claims(pod, volumes, claims),
        *(f'resourceClaim "{name}"' for name in spec.resource_claims),
    ]
    if not needs:
        return None
    listed = " and ".join(filter(None, (", ".join(needs[:-1]), needs[-1])))
    return unresolvable(f"pod needs {listed}, which affinity-scheduler does not support yet")


def _rejected_claims(pod: Pod, volumes: Volumes, claims: Claims) -> Iterator[str]:
    """Yield the rejected claims, those of ephemeral volumes last."""
    for ephemeral in (False, True):
        for volume in pod.spec.claim_volumes:
            key = f"{pod.namespace}/{volume.claim_name(pod.name)}"
            if volume.is_ephemeral is ephemeral and _is_rejected(volumes, key, claims):
                yield f'{"ephemeral volume" if ephemeral else "persistentVolumeClaim"} "{volume.name}"'


def _is_rejected(volumes: Volumes, key: str, claims: Claims) -> bool:
    """Return whether the claim waits for a node; VolumeBinding refuses all others that are not bound."""
    if claims is not Claims.BOUND:
        return claims is Claims.REFUSED
    claim = volumes.claim(key)
    if claim is None or claim.volume_name:
        return False
    storage_class = volumes.storage_class(claim.class_name)
    return storage_class is not None and storage_class.waits


def _hint_after_claim_change(
    pod: Pod, _old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None
) -> Hint:
    return Hint.QUEUE if new is not None and may_use_claim(pod, new.key) else Hint.SKIP
