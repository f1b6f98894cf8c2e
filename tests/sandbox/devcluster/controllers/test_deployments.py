"""The arithmetic of rollouts, and the Deployment controller's steps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.sandbox.devcluster.controllers.actions import (
    Create,
    Delete,
    Update,
)
from scheduler.sandbox.devcluster.controllers.deployments import fenceposts, plan
from scheduler.sandbox.devcluster.kinds import REPLICA_SET
from scheduler.sandbox.devcluster.timestamps import rfc3339
from tests.support.workload_objects import NOW_S, deployment, of, pod, rolling


def replica_set(owner, image, size, *, available=None, age_s=100, status=None):
    """Return a replica set of `owner` with the template of `image`; `available` pods are ready."""
    spec = {**owner["spec"], "template": deployment(image=image)["spec"]["template"]}
    (made,) = [one.obj for one in of(plan({**owner, "spec": spec}, [], [], NOW_S), Create)]
    metadata = {
        **made["metadata"],
        "uid": f"uid-{made['metadata']['name']}",
        "generation": 1,
        "creationTimestamp": rfc3339(NOW_S - age_s),
    }
    count = size if available is None else available
    counted = {"replicas": size, "readyReplicas": count, "availableReplicas": count, "observedGeneration": 1}
    spec = {**made["spec"], "replicas": size}
    return {**made, "metadata": metadata, "spec": spec, "status": status or counted}


def sizes_after(actions):
    """Return the wanted size by image, of every replica set created or resized."""
    written = [a.obj["spec"] for a in of(actions, Create, REPLICA_SET)]
    written += [a.obj["spec"] for a in of(actions, Update, REPLICA_SET)]
    return {spec["template"]["spec"]["containers"][0]["image"]: spec["replicas"] for spec in written}


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "posts"),
    [
        pytest.param(10, "25%", "25%", (3, 2), id="surge rounds up, unavailability down"),
        pytest.param(2, "0%", "1%", (0, 1), id="both at nothing: one may be unavailable"),
        pytest.param(2, "1%", "25%", (1, 0), id="one percent of surge is one pod"),
        pytest.param(1, "1%", "0%", (1, 0), id="a single pod surges"),
        pytest.param(1, 0, 0, (0, 1), id="zero and zero: one may be unavailable"),
        pytest.param(3, 5, 7, (5, 3), id="no more can be unavailable than there are"),
        pytest.param(0, "25%", "25%", (0, 0), id="nothing to roll"),
        pytest.param(4, "100%", "0%", (4, 0), id="all at once"),
    ],
)
def test_limits_of_a_rollout_are_counts_of_pods(replicas, surge, unavailable, posts):
    assert fenceposts(deployment(replicas, strategy=rolling(surge, unavailable))) == posts


def test_a_deployment_that_recreates_has_no_limits():
    assert fenceposts(deployment(4, strategy={"type": "Recreate"})) == (0, 0)


def test_a_new_deployment_gets_a_replica_set_named_by_its_template():
    actions = plan(deployment(3), [], [], NOW_S)
    (created,) = of(actions, Create)
    metadata, spec = created.obj["metadata"], created.obj["spec"]
    mark = metadata["labels"]["pod-template-hash"]
    assert metadata["name"] == f"web-{mark}"
    assert 8 <= len(mark) <= 10
    assert set(mark) <= set("bcdfghjklmnpqrstvwxz2456789")
    assert metadata["ownerReferences"][0]["controller"] is True
    assert spec["replicas"] == 3
    assert spec["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": mark}
    assert spec["template"]["metadata"]["labels"] == {"app": "web", "pod-template-hash": mark}


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "old", "new", "sizes"),
    [
        pytest.param(10, 3, 2, (10, 10), None, {"web:1": 8, "web:2": 3}, id="a surge lets as many go"),
        pytest.param(10, 0, 2, (10, 10), None, {"web:1": 8, "web:2": 0}, id="without surge old ones go first"),
        pytest.param(10, 2, 0, (5, 5), (0, 0), {"web:2": 7}, id="up to size plus surge"),
        pytest.param(10, 0, 1, (5, 5), (5, 5), {"web:1": 4}, id="full: old ones go as far as availability allows"),
        pytest.param(10, 3, 2, (10, 10), (3, 0), {"web:1": 8}, id="new ones not available hold old ones back"),
        pytest.param(10, 3, 2, (10, 8), (3, 0), {"web:1": 8}, id="broken old ones go first"),
        pytest.param(10, 3, 2, (8, 8), (5, 0), {}, id="nothing more until new ones are available"),
        pytest.param(10, 3, 2, (8, 8), (5, 5), {"web:1": 3}, id="available new ones let old ones go"),
        pytest.param(10, 3, 2, (0, 0), (12, 12), {"web:2": 10}, id="too many new ones are cut back"),
        pytest.param(4, "100%", 0, (4, 4), None, {"web:2": 4}, id="blue and green"),
    ],
)  # fmt: skip
def test_a_rolling_update_takes_one_step(replicas, surge, unavailable, old, new, sizes):
    wanted = deployment(replicas, image="web:2", strategy=rolling(surge, unavailable))
    sets = [replica_set(wanted, "web:1", old[0], available=old[1], age_s=200)]
    if new is not None:
        sets.append(replica_set(wanted, "web:2", new[0], available=new[1]))
    assert sizes_after(plan(wanted, sets, [], NOW_S)) == sizes


@given(
    replicas=st.integers(0, 12),
    surge=st.one_of(st.integers(0, 5), st.integers(0, 100).map(lambda n: f"{n}%")),
    unavailable=st.one_of(st.integers(0, 5), st.integers(0, 100).map(lambda n: f"{n}%")),
    chance=st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_a_rollout_ends_and_keeps_its_limits_at_every_step(replicas, surge, unavailable, chance):
    """Never too many pods, never too few available, whatever becomes ready when."""
    wanted = deployment(replicas, image="web:2", strategy=rolling(surge, unavailable))
    max_surge, max_unavailable = fenceposts(wanted)
    sets = {"web:1": replica_set(wanted, "web:1", replicas, age_s=200)}
    for n in range(100):
        actions = plan(wanted, sets.values(), [], NOW_S)
        for action in actions:
            if isinstance(action, Create | Update) and action.kind is REPLICA_SET:
                image = action.obj["spec"]["template"]["spec"]["containers"][0]["image"]
                made = replica_set(wanted, image, 0, status={"replicas": 0})
                sets[image] = {**made, **action.obj, "status": sets.get(image, made)["status"]}
                sets[image]["metadata"] = {**made["metadata"], **action.obj["metadata"]}
            elif isinstance(action, Update):
                wanted = action.obj
        for image, one in sets.items():
            size, was = one["spec"]["replicas"], one["status"].get("availableReplicas", 0)
            ready = size if image == "web:1" else min(size, was + chance.randint(int(n >= 20), 2))
            counts = {"replicas": size, "readyReplicas": ready, "availableReplicas": ready}
            sets[image] = {**one, "status": counts}
        total = sum(one["spec"]["replicas"] for one in sets.values())
        available = sum(one["status"]["availableReplicas"] for one in sets.values())
        assert total <= replicas + max_surge
        assert available >= replicas - max_unavailable
    assert {image: one["spec"]["replicas"] for image, one in sets.items()} == {"web:1": 0, "web:2": replicas}
    (available,) = wanted["status"]["conditions"]
    assert (available["type"], available["status"]) == ("Available", "True")


@pytest.mark.parametrize(
    ("old_size", "old_running", "sizes"),
    [
        pytest.param(3, True, {"web:1": 0}, id="old ones go"),
        pytest.param(0, True, {}, id="nothing comes while old ones still run"),
        pytest.param(0, False, {"web:2": 3}, id="all new ones come at once"),
    ],
)
def test_recreate_ends_all_old_pods_first(old_size, old_running, sizes):
    wanted = deployment(3, image="web:2", strategy={"type": "Recreate"})
    old = replica_set(wanted, "web:1", old_size)
    pods = [pod("p", old, phase="Running", deleted=not old_size)] if old_running else []
    assert sizes_after(plan(wanted, [old], pods, NOW_S)) == sizes


def test_a_plan_does_not_change_its_arguments():
    wanted = deployment(3, image="web:2")
    old = replica_set(wanted, "web:1", 3)
    before = repr((wanted, old))
    plan(wanted, [old], [], NOW_S)
    assert repr((wanted, old)) == before


def test_a_complete_rollout_drops_the_oldest_replica_sets_beyond_its_limit():
    counts = ("replicas", "updatedReplicas", "availableReplicas", "readyReplicas")
    done = {"observedGeneration": 1, **dict.fromkeys(counts, 3)}
    wanted = deployment(3, image="web:4", revisionHistoryLimit=1, status=done)
    sets = [replica_set(wanted, f"web:{n}", 0, age_s=900 - n) for n in (1, 2, 3)]
    actions = plan(wanted, [*sets, replica_set(wanted, "web:4", 3)], [], NOW_S)
    assert [a.obj["metadata"]["name"] for a in of(actions, Delete)] == [
        s["metadata"]["name"] for s in sets[:2]
    ]
