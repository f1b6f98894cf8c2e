"""Which pods with claims wait for what, and which change may help them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler.engine.framework.events import Action, ClusterEvent, ClusterEventWithHint, Hint, Resource
from scheduler.engine.framework.interface import PluginContext
from scheduler.engine.model.allocations import Allocation, DeviceResults
from scheduler.engine.model.device_requests import ResourceClaim
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.wire import OwnerReference
from scheduler.engine.plugins.dynamic_resources.filtering import DynamicResourcesArgs
from scheduler.engine.plugins.dynamic_resources.plugin import DynamicResources
from tests.conformance.product import LiveCluster
from tests.engine.plugins.dynamic_resources.clusters import claim_of
from tests.support import build
from tests.support.build import Json
from tests.support.device_documents import resource_claim, using_claims


def _claim(name: str) -> ResourceClaim:
    return claim_of(resource_claim(name))


_KNOWN = {"default/c": _claim("c")}
_PLUGIN = DynamicResources(
    DynamicResourcesArgs(), PluginContext(resource_claim=_KNOWN.get, serves_claims=lambda: True)
)


def _pod(*claims: str, name: str = "p") -> Pod:
    return LiveCluster().pod(build.pod(name, spec=using_claims(*claims)))


def _allocated(claim: ResourceClaim) -> ResourceClaim:
    return replace(claim, allocation=Allocation(devices=DeviceResults()))


def _special(pod: Pod) -> ResourceClaim:
    owner = OwnerReference("v1", "Pod", pod.name, uid=pod.uid, controller=True)
    return replace(_claim("x"), owners=(owner,), is_special=True)


def _registered(resource: Resource, action: Action) -> ClusterEventWithHint:
    event = ClusterEvent(resource, action)
    (found,) = (each for each in _PLUGIN.events_to_register() if each.matches(event))
    return found


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({}, 'pod "default/p", spec.resourceClaim "e": none of the supported fields are set'),
        ({"resourceClaimTemplateName": "t"}, 'pod "default/p": ResourceClaim not created yet'),
        ({"resourceClaimName": "d"}, 'could not find ResourceClaim "default/d"'),
    ],
)
def test_a_pod_without_its_claim_is_not_tried(entry: Json, says: str) -> None:
    pod = LiveCluster().pod(build.pod("p", spec={"resourceClaims": [{"name": "e", **entry}]}))
    status = _PLUGIN.gate(pod)
    assert status is not None
    assert status.message == says


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        (_pod("c"), Hint.QUEUE),
        (_pod("d"), Hint.SKIP),
        (_pod("c", name="q"), Hint.SKIP),
        (None, Hint.QUEUE),
    ],
    ids=["its claim is there", "its claim is not there", "another pod", "unknown"],
)
def test_a_pod_whose_claims_were_made_is_tried(changed: Pod | None, expected: Hint) -> None:
    hint = _registered(Resource.POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM).hint
    assert hint is not None
    assert hint(_pod("c"), None, changed) is expected


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        (None, Hint.QUEUE),
        (_allocated(_claim("x")), Hint.QUEUE),
        (_claim("x"), Hint.SKIP),
        (_special(_pod("c")), Hint.QUEUE),
        (_special(_pod("c", name="q")), Hint.SKIP),
    ],
    ids=["unknown", "with devices", "without devices", "the pod's own", "another pod's own"],
)
def test_a_claim_that_is_deleted_helps_by_its_devices(gone: ResourceClaim | None, expected: Hint) -> None:
    """Or if it was made for the extended resources of the pod. The hint is asked about every pod that is helped."""
    registered = _registered(Resource.RESOURCE_CLAIM, Action.DELETE)
    assert registered.hint is not None and registered.needs is not None
    assert registered.hint(_pod("c"), gone, None) is expected
    helps_nobody = gone is not None and gone.allocation is None and not gone.is_special
    assert registered.needs(gone, None) == (frozenset() if helps_nobody else None)


@pytest.mark.parametrize(
    ("resource", "action", "is_heard"),
    [
        (Resource.NODE, Action.ADD, True),
        (Resource.NODE, Action.UPDATE_NODE_LABEL, True),
        (Resource.NODE, Action.UPDATE_NODE_ALLOCATABLE, True),
        (Resource.NODE, Action.UPDATE_NODE_TAINT, False),
        (Resource.RESOURCE_CLAIM, Action.ADD, True),
        (Resource.DEVICE_CLASS, Action.UPDATE, True),
        (Resource.RESOURCE_SLICE, Action.ADD, True),
        (Resource.RESOURCE_SLICE, Action.DELETE, False),
        (Resource.DEVICE_TAINT_RULE, Action.DELETE, True),
    ],
)
def test_what_claims_are_made_of_is_heard(resource: Resource, action: Action, *, is_heard: bool) -> None:
    """Source: dynamicresources.go, EventsToRegister (kubernetes 1.36)."""
    event = ClusterEvent(resource, action)
    assert any(each.matches(event) for each in _PLUGIN.events_to_register()) is is_heard
