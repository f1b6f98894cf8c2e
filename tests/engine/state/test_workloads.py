"""Which selectors spread a pod by default; those of owners: the rows of `tests.support.cases`."""

from __future__ import annotations

from scheduler.engine.model.nodes import Workload
from scheduler.engine.state.workloads import SERVICE, Workloads
from scheduler.engine.syntax.selectors import Requirement, Selector

WEB = Selector((Requirement("app", "In", ("web",)),))


def test_a_service_spreads_the_pods_that_it_selects_until_it_is_gone() -> None:
    workloads = Workloads()
    made = Workload(SERVICE, "default", "s", "1", WEB)
    workloads.upsert(made)
    assert workloads.seen("Service", "default/s") == made
    assert workloads.seen("ReplicaSet", "default/s") is None
    assert workloads.default_selector("default", {"app": "web"}, None) == WEB
    assert workloads.default_selector("default", {"app": "db"}, None) is None
    workloads.upsert(Workload(SERVICE, "default", "another", "1", WEB))
    workloads.remove("Service", "default/s")
    assert workloads.default_selector("default", {"app": "web"}, None) == WEB
    workloads.remove("Service", "default/another")
    assert workloads.default_selector("default", {"app": "web"}, None) is None
