"""A plugin refuses a pod everywhere, as if evictions helped, and no pod would have to leave."""

from dataclasses import replace
from random import Random

import pytest

from scheduler.engine.core.decide import decide
from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.framework.interface import FilterPlugin, PodContext
from scheduler.engine.framework.status import Status, unschedulable
from scheduler.engine.state.cluster_view import ClusterView
from tests.conformance.product import ProductSubject
from tests.support import build


class _Closed(FilterPlugin):
    """Refuses every pod, as if evictions helped."""

    name = "Closed"

    def prefilter(self, context: PodContext, view: ClusterView) -> Status:
        del context, view
        return unschedulable("closed")


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ("a", 'expected at least one victim pod on node "a"'),
        (
            "ab",
            '[expected at least one victim pod on node "a", expected at least one victim pod on node "b"]',
        ),
    ],
)
def test_that_nobody_has_to_leave_for_a_refused_pod_is_an_error_of_each_node(nodes: str, text: str):
    """Source: default_preemption.go, SelectVictimsOnNode; errors.NewAggregate (kubernetes 1.36)."""
    product = ProductSubject(None)
    for name in nodes:
        product.apply(build.node(name))
        product.apply(build.pod(f"low-{name}", node=name))
    profile = replace(product.profile, filters=(_Closed(), *product.profile.filters))
    pod = product.cluster.pod(build.pod("incoming", spec={"priority": 5}))
    refused = decide(pod, product.cluster.view(), profile, Random(1))
    assert isinstance(refused, FitError)
    assert refused.postfilter is not None
    assert refused.postfilter.status.message == f"preemption: {text}"
