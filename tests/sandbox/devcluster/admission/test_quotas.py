"""Quotas where the contract suite cannot look: how amounts are written, and which pods count."""

from datetime import UTC, datetime

import pytest

from scheduler.sandbox.devcluster.admission.amounts import Amount
from scheduler.sandbox.devcluster.admission.quotas import recount
from scheduler.sandbox.devcluster.bootstrap import populate
from scheduler.sandbox.devcluster.kinds import CORE_EVENT, POD, REPLICA_SET, RESOURCE_QUOTA
from scheduler.sandbox.devcluster.status import StatusError
from scheduler.sandbox.devcluster.storage.store import Store
from tests.sandbox.devcluster.controllers.running import cluster
from tests.support.waiting import until_written
from tests.support.workload_objects import LABELS, template

_NOW_S = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("0", "0"),
        ("0Mi", "0"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("0.5", "500m"),
        ("2000", "2k"),
        ("1500000", "1500k"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1000Ki", "1000Ki"),
        ("1023", "1023"),
        ("0.5Ki", "512"),
        ("1e3", "1e3"),
        ("12E", "12E"),
        ("12000e3", "12e6"),
        ("100n", "100n"),
        ("-1500m", "-1500m"),
    ],
)
def test_an_amount_is_printed_in_its_own_notation_and_shortest(written, shown):
    assert str(Amount.of(written)) == shown


@pytest.mark.parametrize(
    ("one", "other", "total"),
    [("1Gi", "1024Mi", "2Gi"), ("0", "1Gi", "1Gi"), ("1Gi", "0", "1Gi"), ("250m", "750m", "1")],
)
def test_a_sum_is_written_as_the_first_that_is_not_zero(one, other, total):
    assert str(Amount.of(one) + Amount.of(other)) == total


def test_text_that_is_no_quantity_is_refused():
    with pytest.raises(ValueError, match="quantities must match"):
        Amount.of("two")


def _pod(name, *, phase="Running", spec=None, **metadata):
    container = {"name": "c", "resources": {"requests": {"cpu": "250m"}}}
    return {
        "metadata": {"name": name, **metadata},
        "spec": {"containers": [container], **(spec or {})},
        "status": {"phase": phase},
    }


def _counted(hard, *pods, **spec):
    return recount({"spec": {"hard": hard, **spec}}, pods, _NOW_S)["used"]


_HARD = {"pods": "5", "count/pods": "5", "requests.cpu": "2"}


@pytest.mark.parametrize(
    ("pod", "used"),
    [
        pytest.param(_pod("p"), ("1", "1", "250m"), id="running"),
        pytest.param(_pod("p", phase="Succeeded"), ("0", "1", "0"), id="succeeded"),
        pytest.param(_pod("p", phase="Failed"), ("0", "1", "0"), id="failed"),
        pytest.param(
            _pod("p", deletionTimestamp="2025-12-31T23:59:50Z", deletionGracePeriodSeconds=30),
            ("1", "1", "250m"),
            id="within its grace",
        ),
        pytest.param(
            _pod("p", deletionTimestamp="2025-12-31T23:59:00Z", deletionGracePeriodSeconds=30),
            ("0", "1", "0"),
            id="past its grace",
        ),
        pytest.param(
            _pod("p", spec={"resources": {"requests": {"cpu": "1"}}, "overhead": {"cpu": "100m"}}),
            ("1", "1", "1100m"),
            id="sized as a whole",
        ),
    ],
)
def test_pods_count_until_they_have_ended_and_objects_for_ever(pod, used):
    assert _counted(_HARD, pod) == dict(zip(_HARD, used, strict=True))


def test_only_pods_in_every_scope_are_counted():
    term = {"topologyKey": "t", "namespaceSelector": {}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    pods = [_pod("a"), _pod("b", spec={"affinity": affinity})]
    assert _counted({"pods": "5"}, *pods, scopes=["CrossNamespacePodAffinity"]) == {"pods": "1"}
    assert _counted({"pods": "5"}, *pods, scopes=["CrossNamespacePodAffinity", "BestEffort"]) == {"pods": "0"}
    assert _counted({"pods": "5"}, *pods, scopes=["VolumeAttributesClass"]) == {"pods": "0"}


@pytest.mark.parametrize("resource", ["services", "count/deployments.apps", "persistentvolumeclaims"])
def test_a_quota_that_nothing_would_enforce_is_refused(resource):
    store = Store()
    populate(store, nodes=0, zones=1)
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {resource: "1"}}}
    with pytest.raises(StatusError, match="the embedded cluster has quotas of pods alone") as refused:
        store.create(RESOURCE_QUOTA, "default", quota)
    assert refused.value.code == 422


@pytest.mark.asyncio
async def test_controllers_count_and_refuse_and_deletions_make_room():
    async with cluster() as store:

        def used():
            status = store.get(RESOURCE_QUOTA, "default", "q").get("status") or {}
            return (status.get("used") or {}).get("pods")

        def refusals():
            return store.list(CORE_EVENT, "default", field_selector="reason=FailedCreate")[0]

        def n_pods():
            return len(store.list(POD, "default")[0])

        store.create(RESOURCE_QUOTA, "default", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "2"}}})
        await until_written(store, lambda: used() == "0")
        spec = {"replicas": 3, "selector": {"matchLabels": LABELS}, "template": template()}
        store.create(REPLICA_SET, "default", {"metadata": {"name": "web"}, "spec": spec})
        await until_written(store, refusals)
        assert (
            "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2" in refusals()[0]["message"]
        )
        assert (n_pods(), used()) == (2, "2")
        store.patch(RESOURCE_QUOTA, "default", "q", {"spec": {"hard": {"pods": "3"}}})
        await until_written(store, lambda: n_pods() == 3)
        store.patch(REPLICA_SET, "default", "web", {"spec": {"replicas": 0}})
        await until_written(store, lambda: used() == "0" and not n_pods())
