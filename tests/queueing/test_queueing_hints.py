"""Which events may help which pods."""

import pytest

from scheduler.framework.events import NODE_ADD, Action, ClusterEvent, ClusterEventWithHint, Resource
from scheduler.queueing.queued_pod import QueuedPod
from scheduler.queueing.queueing_hints import QueueingHints
from tests.queueing.build import pod

HINTS = QueueingHints(
    {
        "default-scheduler": {"NodeName": [ClusterEventWithHint(Resource.NODE, Action.ADD)], "Fit": []},
        "other": {},
    }
)


@pytest.mark.parametrize(
    ("plugins", "profile", "is_worth_it"),
    [
        pytest.param({"Fit"}, "default-scheduler", False, id="the plugin did not register the event"),
        pytest.param({"NodeName"}, "default-scheduler", True, id="the plugin registered it"),
        pytest.param({"Fit", "NodeName"}, "default-scheduler", True, id="one of two plugins registered it"),
        pytest.param({"NodeName"}, "other", False, id="another profile's plugin registered it"),
    ],
)
def test_a_pod_is_requeued_by_the_events_that_its_rejecting_plugins_registered(plugins, profile, is_worth_it):
    queued = QueuedPod(pod("p", profile=profile), 0.0, 1, unschedulable_plugins=frozenset(plugins))
    assert HINTS.is_worth_requeuing(queued, NODE_ADD, None, None) is is_worth_it


@pytest.mark.parametrize(
    ("event", "plugins"),
    [
        (NODE_ADD, {"NodeName"}),
        (ClusterEvent(Resource.NODE, Action.UPDATE_NODE_TAINT), {"NodeName"}),
        (ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL), set()),
    ],
    ids=lambda value: value.label if isinstance(value, ClusterEvent) else "",
)
def test_an_event_interests_the_plugins_that_registered_it(event, plugins):
    assert HINTS.interested_plugins(event, None, None).keys() == plugins
