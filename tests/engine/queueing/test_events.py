"""Labels, matching and derivation of cluster events, as far as the queue's model draws no such events."""

from dataclasses import replace

import pytest

from scheduler.engine.framework.events import (
    KUBELET_REFUSAL_OVER,
    NODE_ADD,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    Hint,
    Resource,
    node_update_actions,
    pod_update_actions,
    with_node_taint_updates,
)
from scheduler.engine.model.pods import ContainerResize, Resize
from scheduler.engine.syntax.quantity import parse_quantity
from tests.engine.queueing.build import node, pod

ASSIGNED_POD_UPDATE = ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE)


@pytest.mark.parametrize(
    ("event", "label"),
    [
        (ClusterEvent(Resource.CSI_NODE, Action.UPDATE), "storage.k8s.io/CSINodeUpdate"),
        (KUBELET_REFUSAL_OVER, "KubeletRefusalOver"),
    ],
)
def test_an_event_is_labelled_by_resource_and_action_unless_it_has_a_name(event, label):
    assert event.label == label


@pytest.mark.parametrize(
    ("registered", "event", "matches"),
    [
        pytest.param(
            (Resource.POD, Action.UPDATE),
            ClusterEvent(Resource.ASSIGNED_POD, Action.UPDATE_POD_LABEL),
            True,
            id="update covers a specific update",
        ),
        pytest.param(
            (Resource.POD, Action.UPDATE_POD_LABEL),
            ASSIGNED_POD_UPDATE,
            False,
            id="a specific update does not cover the generic one",
        ),
        pytest.param((Resource.POD, Action.UPDATE), ASSIGNED_POD_UPDATE, True, id="generic on generic"),
        pytest.param((Resource.WILDCARD, Action.ALL), NODE_ADD, True, id="everything registered"),
    ],
)
def test_a_registration_matches_an_event_it_contains(registered, event, matches):
    assert ClusterEventWithHint(*registered).matches(event) is matches


def _never(_pod, _old, _new):
    return Hint.SKIP


@pytest.mark.parametrize(
    "registrations",
    [
        pytest.param([(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT)], id="taints too"),
        pytest.param(
            [(Resource.NODE, Action.ADD), (Resource.NODE, Action.UPDATE)], id="taints in another registration"
        ),
    ],
)
def test_no_taint_updates_are_added_to_those_that_a_plugin_registers(registrations):
    registrations = [ClusterEventWithHint(resource, actions, _never) for resource, actions in registrations]
    assert with_node_taint_updates(registrations) == tuple(registrations)


NO_GATES_LEFT = Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED


def of(cpu, **more):
    """Return what a pod requests."""
    return {"requests": {"cpu": cpu, **more}}


@pytest.mark.parametrize(
    ("old", "new", "actions"),
    [
        pytest.param({}, {}, [Action.UPDATE], id="nothing"),
        pytest.param({}, {"priority": 3}, [Action.UPDATE], id="priority"),
        pytest.param({}, {"labels": {"a": "b"}}, [Action.UPDATE_POD_LABEL], id="label"),
        pytest.param({}, {"tolerations": "t"}, [Action.UPDATE_POD_TOLERATION], id="one more toleration"),
        pytest.param({"tolerations": "t"}, {"tolerations": "u"}, [Action.UPDATE], id="another toleration"),
        pytest.param({"gates": "ab"}, {"gates": "b"}, [Action.UPDATE], id="a gate less"),
        pytest.param({"gates": "a"}, {}, [NO_GATES_LEFT], id="all gates gone"),
        pytest.param(of("2"), of("1"), [Action.UPDATE_POD_SCALE_DOWN], id="request fell"),
        pytest.param(
            of("1", memory="1"), of("2"), [Action.UPDATE_POD_SCALE_DOWN], id="one vanished, another rose"
        ),
        pytest.param(of("1"), of("1.5"), [Action.UPDATE], id="request rose"),
        pytest.param(of("1.0001m"), of("1.00005m"), [Action.UPDATE], id="it fell by less than a thousandth"),
        pytest.param(
            {"gates": "a", **of("2")},
            {"labels": {"a": "b"}, "tolerations": "t"},
            [
                Action.UPDATE_POD_LABEL,
                Action.UPDATE_POD_SCALE_DOWN,
                NO_GATES_LEFT,
                Action.UPDATE_POD_TOLERATION,
            ],
            id="everything",
        ),
    ],
)
def test_the_actions_of_a_pod_update_are_what_it_changed(old, new, actions):
    assert pod_update_actions(pod("p", **old), pod("p", **new)) == actions


def test_a_request_falls_when_the_resize_ends():
    asked, two = pod("p", **of("1")), {"cpu": parse_quantity("2")}
    held = {asked.spec.containers[0].name: ContainerResize(requests=two, allocated=two)}
    resized = replace(asked, resize=Resize(held, None, {}, infeasible=False))
    assert pod_update_actions(pod("p", **of("2")), resized) == [Action.UPDATE]
    assert pod_update_actions(resized, asked) == [Action.UPDATE_POD_SCALE_DOWN]


@pytest.mark.parametrize(
    ("old", "new", "actions"),
    [
        pytest.param(node(), node(), [], id="nothing"),
        pytest.param(node(), node(images={"other": 1}), [], id="images"),
        pytest.param(node(), node(labels={"a": "b"}), [Action.UPDATE_NODE_LABEL], id="label"),
        pytest.param(node(), node(taints=["t:NoSchedule"]), [Action.UPDATE_NODE_TAINT], id="taint"),
        pytest.param(node(), node(unschedulable=True), [], id="cordoned"),
        pytest.param(node(unschedulable=True), node(), [Action.UPDATE_NODE_TAINT], id="uncordoned"),
        pytest.param(node(), node(cpu="5"), [Action.UPDATE_NODE_ALLOCATABLE], id="allocatable"),
        pytest.param(
            node(),
            replace(node(), annotations={"price": "1"}),
            [Action.UPDATE_NODE_ANNOTATION],
            id="an annotation that a plugin reads",
        ),
        pytest.param(node(), node(features=["F"]), [Action.UPDATE_NODE_DECLARED_FEATURE], id="feature"),
        pytest.param(
            node(unschedulable=True),
            node(taints=["t:NoSchedule"], cpu="5", labels={"a": "b"}),
            [Action.UPDATE_NODE_TAINT, Action.UPDATE_NODE_ALLOCATABLE, Action.UPDATE_NODE_LABEL],
            id="several",
        ),
    ],
)
def test_the_actions_of_a_node_update_are_what_it_changed(old, new, actions):
    assert node_update_actions(old, new) == actions
