"""Which selectors spread a pod by default."""

from __future__ import annotations

import pytest

from scheduler.engine.model.nodes import Workload
from scheduler.engine.model.wire import Owner
from scheduler.engine.state.workloads import SERVICE, Workloads
from scheduler.engine.syntax.selectors import NOTHING, Requirement, Selector

WEB = Selector((Requirement("app", "In", ("web",)),))


@pytest.mark.parametrize(
    ("owner", "selector", "expected"),
    [
        pytest.param(Owner("v1", "ReplicationController", "o"), WEB, WEB, id="replication controller"),
        pytest.param(Owner("apps/v1", "ReplicaSet", "o"), WEB, WEB, id="replica set"),
        pytest.param(Owner("apps/v1", "StatefulSet", "o"), WEB, WEB, id="stateful set"),
        pytest.param(Owner("apps/v1", "ReplicaSet", "o"), NOTHING, None, id="without a selector"),
        pytest.param(Owner("example.com/v1", "ReplicaSet", "o"), WEB, None, id="another API"),
        pytest.param(Owner("apps/v1", "ReplicaSet", "other"), WEB, None, id="not known"),
    ],
)
def test_the_selector_of_a_pods_owner_spreads_it(
    owner: Owner, selector: Selector, expected: Selector | None
) -> None:
    workloads = Workloads()
    workloads.upsert(Workload(owner.kind, "default", "o", "1", selector))
    assert workloads.default_selector("default", {"app": "web"}, owner) == expected
    assert workloads.default_selector("elsewhere", {"app": "web"}, owner) is None


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
