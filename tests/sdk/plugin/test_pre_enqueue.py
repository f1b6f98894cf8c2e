"""An out-of-tree plugin at PreEnqueue keeps pods out of the active queue until one of its events."""

from typing import Any

from scheduler.sdk.plugin import Action, ClusterEventWithHint, Resource
from scheduler.sdk.testing import Cluster, make_node, make_pod
from tests.support.driving import Driver, kinds
from tests.support.messages import refusals


class Approved:
    """Admits pods with the label `approved`."""

    name = "Approved"

    def events_to_register(self) -> Any:
        return [ClusterEventWithHint(Resource.POD, Action.UPDATE_POD_LABEL)]

    def admits(self, pod: Any) -> bool:
        return "approved" in pod.labels


def test_a_pod_is_tried_once_the_guest_admits_it():
    driver = Driver(settings=Cluster(plugins=[Approved]).settings)
    driver.node("a")
    driver.pod("web")
    assert driver.cycle() == []
    assert driver.queue.depths()["gated"] == 1
    driver.pod("web", labels={"approved": "yes"})
    assert kinds(driver.cycle()) == ["Bind"]


def test_a_decision_says_that_a_pod_is_not_admitted():
    """As `explain` and a simulation do, which know no queue."""
    cluster = Cluster(plugins=[Approved]).add(make_node("a"))
    assert (
        refusals(cluster.decide(make_pod()).message)
        == "0/1 nodes are available: pod is not admitted by plugin Approved."
    )
    assert cluster.decide(make_pod(labels={"approved": "yes"})).node == "a"
