"""Which kinds of members have to be near each other, and for which it does not matter which devices each takes."""

from __future__ import annotations

import pytest

from scheduler.engine.core import group_members
from scheduler.engine.core.group_devices import is_first_fit_best
from scheduler.engine.core.group_members import components_of, kinds_of
from scheduler.engine.state.batches import finished
from scheduler.engine.state.cluster_view import ClusterView
from tests.engine.core.claim_cluster import ClaimCluster
from tests.support import build
from tests.support.device_documents import device_class, device_slice, resource_claim
from tests.support.driving import Driver

RACK = "rack"


def _chain(n: int) -> tuple[list[tuple[str, ...]], list[str]]:
    """Return the members of each component of a chain, in which each pod needs the next, and of one pod beside it."""
    driver = Driver()
    driver.node("n", labels={RACK: "a"})
    members = [
        driver.pod(
            f"m{index}",
            labels={"app": f"a{index}"},
            affinity=build.affinity(required=[build.term(RACK, build.selector(f"app=a{index + 1}"))]),
        )
        for index in range(n)
    ]
    members.append(driver.pod("alone"))
    view = ClusterView(driver.state)
    components = finished(components_of(finished(kinds_of(members, view)), view))
    names = [tuple(sorted(pod.name for kind in one.kinds for pod in kind.pods)) for one in components]
    return names, [one.key for one in components]


def test_a_chain_is_one_component_and_a_pod_without_rules_another() -> None:
    assert _chain(4) == ([("m0", "m1", "m2", "m3"), ("alone",)], [RACK, ""])


def test_beyond_the_bound_every_kind_is_still_in_one_component(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_members, "_MOST_COMPARED", 3)
    names, _ = _chain(6)
    assert len(names) > 2
    assert sorted(name for one in names for name in one) == ["alone", *(f"m{index}" for index in range(6))]


@pytest.mark.parametrize(
    ("counts", "gpus", "is_best", "is_best_if_shared"),
    [
        pytest.param((), 0, True, True, id="no devices"),
        pytest.param((1,), 0, True, True, id="a claim of one device"),
        pytest.param((2,), 0, True, False, id="a claim of two devices"),
        pytest.param((1, 1), 0, False, False, id="two claims"),
        pytest.param((), 1, True, True, id="an extended resource"),
        pytest.param((), 2, True, False, id="two of an extended resource"),
        pytest.param((1,), 1, False, False, id="a claim beside an extended resource"),
    ],
)
@pytest.mark.parametrize("shared", [False, True], ids=["whole devices", "devices of several claims"])
def test_first_fit_is_best_where_all_copies_take_devices_of_one_kind(
    counts: tuple[int, ...], gpus: int, is_best: bool, is_best_if_shared: bool, shared: bool
) -> None:
    cluster = ClaimCluster(nodes=("a",))
    cluster.show(device_class("gpu", "example.com/gpu"))
    cluster.show(device_slice("a", 2, allowMultipleAllocations=shared))
    names = [f"c{number}" for number in range(len(counts))]
    for name, count in zip(names, counts, strict=True):
        cluster.store(resource_claim(name, count))
    cluster.watch()
    document = build.pod(
        containers=[build.container(requests={"example.com/gpu": str(gpus)} if gpus else {})],
        spec={"resourceClaims": [{"name": name, "resourceClaimTemplateName": "t"} for name in names]},
    )
    statuses = [{"name": name, "resourceClaimName": name} for name in names]
    document["status"]["resourceClaimStatuses"] = statuses
    expected = is_best_if_shared if shared else is_best
    assert is_first_fit_best(cluster.decoded(document), ClusterView(cluster.state)) is expected


def test_claims_that_pods_share_are_not_taken_anew_by_each_copy() -> None:
    cluster = ClaimCluster(nodes=("a",))
    cluster.apply(resource_claim("c"))
    assert not is_first_fit_best(cluster.using("c"), ClusterView(cluster.state))
