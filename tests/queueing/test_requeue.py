"""What one event means for one pod."""

import pytest

from scheduler.framework.events import (
    FORCE_ACTIVATE,
    NODE_ADD,
    UNSCHEDULABLE_TIMEOUT,
    Action,
    ClusterEvent,
    Registration,
    Resource,
)
from scheduler.queueing.queued_pod import QueuedPod
from scheduler.queueing.requeue import Requeue, RequeueRules
from tests.queueing.build import node, pod

RULES = RequeueRules(
    {"default-scheduler": {"NodeName": [Registration(Resource.NODE, Action.ADD)], "Fit": []}, "other": {}}
)


@pytest.mark.parametrize(
    ("rejecting", "event", "new", "decision"),
    [
        pytest.param((), NODE_ADD, None, Requeue.AFTER_BACKOFF, id="after an error anything goes"),
        pytest.param(("Fit",), UNSCHEDULABLE_TIMEOUT, None, Requeue.AFTER_BACKOFF, id="a wildcard for all"),
        pytest.param(("Fit",), FORCE_ACTIVATE, pod("p"), Requeue.AFTER_BACKOFF, id="a wildcard for this pod"),
        pytest.param(("Fit",), FORCE_ACTIVATE, pod("q"), Requeue.SKIP, id="a wildcard for another pod"),
        pytest.param(("Fit",), FORCE_ACTIVATE, node("p"), Requeue.SKIP, id="a wildcard for no pod"),
        pytest.param(("Fit",), NODE_ADD, None, Requeue.SKIP, id="an event the plugin did not register"),
        pytest.param(("NodeName",), NODE_ADD, None, Requeue.AFTER_BACKOFF, id="an event it registered"),
    ],
)
def test_the_requeue_decision_follows_the_table(rejecting, event, new, decision):
    queued = QueuedPod(pod("p"), 0.0, 1, rejecting=frozenset(rejecting))
    assert RULES.decide(queued, event, None, new) is decision


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
    assert RULES.interested_plugins(event) == plugins
