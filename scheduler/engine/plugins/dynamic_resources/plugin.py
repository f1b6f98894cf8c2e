"""
DynamicResources: a pod runs where its ResourceClaims are allocated, or can be.

`claims` tells which claims a pod has, `filtering` asks every node, `allocator` finds devices; `reserving` says what is
written, `post_filter` what is given up for a pod that fits nowhere.

Source: plugins/dynamicresources/dynamicresources.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

from scheduler.engine.framework.diagnosis import PostFiltered
from scheduler.engine.framework.events import (
    Action,
    ClusterEventWithHint,
    Hint,
    Need,
    Resource,
    queue_if,
    resource_claim_need,
)
from scheduler.engine.framework.explaining import ExplainContext, PluginExplanation
from scheduler.engine.framework.interface import (
    FeasibleNodes,
    FilterPlugin,
    PluginContext,
    PodContext,
    PreEnqueuePlugin,
    PreFiltered,
    PreScored,
    Rng,
    ScorePlugin,
)
from scheduler.engine.framework.post_filter import PostFilterPlugin, UnfitPod
from scheduler.engine.framework.status import SKIP, Status, unresolvable, unschedulable
from scheduler.engine.model.claim_writes import ClaimDeallocation, ClaimDeletion, ClaimRelease
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.pods import MemoBySpec, Pod
from scheduler.engine.plugins.dynamic_resources.allocator import Allocator
from scheduler.engine.plugins.dynamic_resources.claims import checked, held_in_deletion, resolved
from scheduler.engine.plugins.dynamic_resources.device_findings import DeviceInspection, RefusedNodes
from scheduler.engine.plugins.dynamic_resources.explaining import explain_devices, failure_text, known_classes
from scheduler.engine.plugins.dynamic_resources.extended_resources import (
    Variants,
    extended_request,
    special_claim,
)
from scheduler.engine.plugins.dynamic_resources.filtering import DeviceFilter, DynamicResourcesArgs
from scheduler.engine.plugins.dynamic_resources.pool_index import PoolIndex
from scheduler.engine.plugins.dynamic_resources.reserving import NAME, ReservedClaims
from scheduler.engine.plugins.dynamic_resources.scoring import scorer_of
from scheduler.engine.plugins.dynamic_resources.selection import SelectorResults
from scheduler.engine.plugins.dynamic_resources.trial import has_no_pod
from scheduler.engine.state.batches import Pieces
from scheduler.engine.state.cluster_view import ClusterView

NO_CLAIMS: Final = PostFiltered(unschedulable("no new claims to deallocate"))
_STILL_UNSCHEDULABLE: Final = PostFiltered(unschedulable("still not schedulable"))


def post_filtered(device_filter: DeviceFilter | None, rng: Rng) -> PostFiltered:
    """Return the deallocation of one claim that no other pod needs, or of the claim for extended resources."""
    if device_filter is None:
        return NO_CLAIMS
    uid, special = device_filter.pod.uid, device_filter.claims.special
    freeable = [
        claim
        for claim in device_filter.unavailable()
        if claim is not special and all(each.uid == uid for each in claim.reserved_for)
    ]
    if freeable:
        claim = freeable[rng.randrange(len(freeable))]
        status = unschedulable("deallocation of ResourceClaim completed")
        return PostFiltered(status, writes=(ClaimDeallocation(claim),))
    if special is not None and special.resource_version:
        status = unschedulable("deletion of ResourceClaim completed")
        return PostFiltered(status, writes=(ClaimDeletion(special),))
    return _STILL_UNSCHEDULABLE


class DynamicResources(PreEnqueuePlugin, FilterPlugin, ScorePlugin, PostFilterPlugin):
    """Claims and their devices."""

    name = NAME
    extension_points: ClassVar = (
        "preEnqueue",
        "preFilter",
        "filter",
        "postFilter",
        "score",
        "reserve",
        "preBind",
    )
    default_weight: ClassVar = 2
    storage_kinds: ClassVar = tuple(DeviceKind)
    args_type: ClassVar = DynamicResourcesArgs

    def __init__(self, args: DynamicResourcesArgs, context: PluginContext) -> None:
        self._args, self._semantics = args, context.semantics
        self._claim_of, self._serves_claims = context.resource_claim, context.serves_claims
        self._extended_request = MemoBySpec(extended_request)

    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        """Return the events of all objects about claims, devices and their nodes."""
        both = Action.ADD | Action.UPDATE
        return (
            ClusterEventWithHint(
                Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE
            ),
            ClusterEventWithHint(
                Resource.RESOURCE_CLAIM,
                both | Action.DELETE,
                self._hint_after_claim_change,
                needs=_needs_after_claim_change,
            ),
            ClusterEventWithHint(
                Resource.POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM, self._hint_after_pod_update
            ),
            # Upstream's filter does not count the devices that nominated pods are to get.
            ClusterEventWithHint(
                Resource.POD, Action.DELETE, _hint_after_pod_deletion, needs=_needs_after_pod_deletion
            ),
            ClusterEventWithHint(Resource.DEVICE_CLASS, both),
            ClusterEventWithHint(Resource.RESOURCE_SLICE, both),
            # Upstream changes the slices instead.
            ClusterEventWithHint(Resource.DEVICE_TAINT_RULE, both | Action.DELETE),
        )

    def admits(self, pod: Pod) -> bool:
        """Return whether the pod's claims exist and are its own."""
        return self.gate(pod) is None

    def gate(self, pod: Pod) -> Status | None:
        """Return why the pod's claims keep it from being tried, None if they do not."""
        # Difference: a pod is tried, so that PostFilter releases a claim which is being deleted and reserved for it.
        if not pod.spec.resource_claims or not self._serves_claims():
            return None
        claims = resolved(pod, self._claim_of)
        if not isinstance(claims, str) or any(held_in_deletion(pod, self._claim_of)):
            return None
        return unresolvable(claims)

    def prefilter(self, context: PodContext, view: ClusterView) -> PreFiltered:
        """Skip a pod without claims, and without extended resources that a class provides."""
        pod, devices = context.pod, view.devices
        if not devices.is_served or not (pod.spec.resource_claims or devices.extended_resources):
            return SKIP
        of_user = resolved(pod, devices.claim)
        if isinstance(of_user, str):
            return unresolvable(of_user)
        request = self._extended_request.of(pod) if devices.extended_resources else {}
        special = special_claim(pod, request, devices)
        if not of_user and special is None:
            return SKIP
        claims = checked(pod, of_user, special, view)
        if isinstance(claims, Status):
            return claims
        variants = None if special is None else Variants(pod, special, request, devices)
        index = view.state.derived.kept("pools of devices", lambda: PoolIndex(devices))
        allocator = Allocator(
            index,
            devices.allocated,
            devices.classes,
            SelectorResults(view.state.derived.kept),
            seed=f"{pod.uid}/{devices.allocated.version}",
        )
        device_filter = DeviceFilter(pod, claims, variants, view, allocator, self._args, self._semantics)
        context.cycle_state[NAME] = device_filter
        return device_filter

    def explain(self, context: ExplainContext) -> PluginExplanation:
        """Say which devices each request found on a node, and why they were not taken."""
        nodes = self._refused_nodes(context)
        return PluginExplanation() if nodes is None else explain_devices(nodes)

    def _refused_nodes(self, context: ExplainContext) -> RefusedNodes | None:
        view = context.view
        device_filter = self.prefilter(PodContext(context.pod, view.label_set(context.pod)), view)
        if not isinstance(device_filter, DeviceFilter):
            return None
        device_filter.mask()
        results = SelectorResults(view.state.derived.kept)
        return RefusedNodes(
            context, device_filter, DeviceInspection(device_filter.index, view.devices, results)
        )

    def explain_rejection(self, context: ExplainContext) -> str:
        """Say which classes there are for a claim that names an unknown one, or which objects make the search fail."""
        nodes = self._refused_nodes(context)
        return known_classes(context) if nodes is None else failure_text(nodes)

    def is_left_behind(self, claim: ResourceClaim, view: ClusterView) -> bool:
        """Return whether the claim has no pod any more; False where pods are not evicted for devices."""
        return self._args.preempt_for_devices and has_no_pod(claim, view)

    def reserve_together(
        self, pods: Sequence[Pod], row: int, view: ClusterView
    ) -> Sequence[ReservedClaims | None] | None:
        """Return what is reserved for each of the pods, with devices from one search for all their claims."""
        filters = [self.prefilter(PodContext(pod, view.label_set(pod)), view) for pod in pods]
        of_devices = [each for each in filters if isinstance(each, DeviceFilter)]
        return None if len(of_devices) < len(pods) else of_devices[0].reserve_together(of_devices[1:], row)

    def prescore(self, context: PodContext, view: ClusterView, feasible: FeasibleNodes) -> PreScored:
        """Score nodes by the alternatives that claims get there; a pod without claims is skipped: all would get 0."""
        del view
        device_filter = context.cycle_state.get(NAME)
        return SKIP if device_filter is None else scorer_of(device_filter, feasible)

    def postfilter(self, unfit: UnfitPod, view: ClusterView, rng: Rng) -> Pieces[PostFiltered]:
        """Give up an allocation that keeps the pod from all nodes, in one piece."""
        yield from ()
        device_filter, pod = unfit.context.cycle_state.get(NAME), unfit.context.pod
        if device_filter is None and (held := tuple(held_in_deletion(pod, view.devices.claim))):
            return PostFiltered(NO_CLAIMS.status, writes=tuple(ClaimRelease(claim, pod) for claim in held))
        return post_filtered(device_filter, rng)

    def _hint_after_claim_change(
        self, pod: Pod, old: ResourceClaim | None, new: ResourceClaim | None
    ) -> Hint:
        # Source: dynamicresources.go, isSchedulableAfterClaimChange (kubernetes 1.36). Difference: upstream hears of no
        # deletion, so that a pod waits for its next flush after its claim for extended resources was deleted
        # (PostFilter), or after a list without a claim that had devices.
        if new is None:
            return queue_if(old is None or old.allocation is not None or _is_made_for(old, pod))
        claims = resolved(pod, self._claim_of)
        if isinstance(claims, str):
            return Hint.SKIP
        if _is_deallocated(old, new):
            return Hint.QUEUE
        if all(claim.uid != new.uid for claim in claims):
            return Hint.SKIP
        return queue_if(old is None or _status_of(old) != _status_of(new))

    def _hint_after_pod_update(self, pod: Pod, _old: Pod | None, new: Pod | None) -> Hint:
        """Source: dynamicresources.go, isSchedulableAfterPodChange (kubernetes 1.36)."""
        if new is None:
            return Hint.QUEUE
        return queue_if(new.uid == pod.uid and not isinstance(resolved(new, self._claim_of), str))


def _hint_after_pod_deletion(_pod: Pod, old: Pod | None, _new: Pod | None) -> Hint:
    """Queue a pod after the end of a nomination, for which devices may have been kept."""
    return queue_if(old is not None and old.nominated_node_name not in ("", old.node_name))


def _needs_after_pod_deletion(old: Pod | None, _new: Pod | None) -> frozenset[Need] | None:
    """Return no needs after the end of a pod that was on a node, whose claims are deallocated."""
    return frozenset() if old is None or old.nominated_node_name in ("", old.node_name) else None


def _is_deallocated(old: ResourceClaim | None, new: ResourceClaim) -> bool:
    return old is not None and old.allocation is not None and new.allocation is None


def _is_made_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Return whether the claim was created for the pod's extended resources."""
    return claim.is_special and any(owner.uid == pod.uid for owner in claim.owners)


def _status_of(claim: ResourceClaim) -> tuple[object, ...]:
    return claim.allocation, claim.reserved_for, claim.devices


def _needs_after_claim_change(old: ResourceClaim | None, new: ResourceClaim | None) -> frozenset[Need] | None:
    """Return the claim that changed: only its pods are helped, unless its devices are free now."""
    if new is None:
        return frozenset() if old is not None and old.allocation is None and not old.is_special else None
    if _is_deallocated(old, new):
        return None
    return frozenset((resource_claim_need(new.key),))
