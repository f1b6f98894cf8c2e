"""The arithmetic of rollouts, and the Deployment controller's steps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.sandbox.devcluster.controllers.actions import Create, Delete, Update
from scheduler.sandbox.devcluster.controllers.deployments import fenceposts
from scheduler.sandbox.devcluster.kinds import DEPLOYMENT, REPLICA_SET
from scheduler.sandbox.devcluster.parts import rfc3339
from tests.support.workload_objects import LABELS, NOW_S, of, owner, planned, template


def deployment(replicas, image="web:1", *, surge=None, unavailable=None, recreates=False):
    """Return a Deployment as the server stores it."""
    limits = {"maxSurge": surge, "maxUnavailable": unavailable}
    strategy = {"type": "Recreate"} if recreates else {"type": "RollingUpdate", "rollingUpdate": limits}
    spec = {"selector": {"matchLabels": dict(LABELS)}, "template": template(image), "strategy": strategy}
    return owner("Deployment", {"replicas": replicas, **spec})


def steps(wanted, *sets):
    return planned(DEPLOYMENT, wanted, beside=[(REPLICA_SET, one) for one in sets])


def image_of(replica_set):
    return replica_set["spec"]["template"]["spec"]["containers"][0]["image"]


def replica_set(wanted, image, size, *, available=None, age_s=100, terminating=0):
    """Return a replica set of a Deployment for the template of `image`; `available` pods are ready."""
    (made,) = of(steps({**wanted, "spec": {**wanted["spec"], "template": template(image)}}), Create)
    metadata = {**made.obj["metadata"], "uid": image, "creationTimestamp": rfc3339(NOW_S - age_s)}
    count = size if available is None else available
    status = {"replicas": size, "availableReplicas": count, "terminatingReplicas": terminating}
    return {
        **made.obj,
        "metadata": metadata,
        "spec": {**made.obj["spec"], "replicas": size},
        "status": status,
    }


@pytest.mark.parametrize(
    ("replicas", "surge", "unavailable", "posts"),
    [
        pytest.param(10, "25%", "25%", (3, 2), id="surge rounds up, unavailability down"),
        pytest.param(2, "0%", "1%", (0, 1), id="both at nothing: one may be unavailable"),
        pytest.param(3, 5, 7, (5, 3), id="no more can be unavailable than there are"),
        pytest.param(4, "100%", "0%", (4, 0), id="all at once"),
    ],
)
def test_limits_of_a_rollout_are_counts_of_pods(replicas, surge, unavailable, posts):
    assert fenceposts(deployment(replicas, surge=surge, unavailable=unavailable)) == posts


def test_a_new_deployment_gets_a_replica_set_named_by_its_template():
    (created,) = of(steps(deployment(3)), Create)
    metadata, spec = created.obj["metadata"], created.obj["spec"]
    mark = metadata["labels"]["pod-template-hash"]
    assert metadata["name"] == f"w-{mark}"
    assert metadata["ownerReferences"][0]["controller"] is True
    assert spec["replicas"] == 3
    labels = {**LABELS, "pod-template-hash": mark}
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"] == labels


@given(
    replicas=st.integers(0, 12),
    surge=st.one_of(st.integers(0, 5), st.integers(0, 100).map(lambda n: f"{n}%")),
    unavailable=st.one_of(st.integers(0, 5), st.integers(0, 100).map(lambda n: f"{n}%")),
    chance=st.randoms(use_true_random=False),
)
@settings(max_examples=20, deadline=None)
def test_a_rollout_ends_and_keeps_its_limits_at_every_step(replicas, surge, unavailable, chance):
    """Never too many pods, never too few available, whatever becomes ready when; the old replica set goes."""
    wanted = deployment(replicas, "web:2", surge=surge, unavailable=unavailable)
    max_surge, max_unavailable = fenceposts(wanted)
    sets = {"web:1": replica_set(wanted, "web:1", replicas, age_s=200)}
    for n in range(100):
        for action in steps(wanted, *sets.values()):
            if isinstance(action, Delete):
                del sets[image_of(action.obj)]
            elif isinstance(action, Create | Update) and action.kind is REPLICA_SET:
                image = image_of(action.obj)
                made = sets.get(image) or replica_set(wanted, image, 0)
                sets[image] = {**made, "spec": action.obj["spec"]}
            elif isinstance(action, Update):
                wanted = action.obj
        for image, one in sets.items():
            size, was = one["spec"]["replicas"], one["status"].get("availableReplicas", 0)
            ready = size if image == "web:1" else min(size, was + chance.randint(int(n >= 20), 2))
            sets[image] = {**one, "status": {"replicas": size, "availableReplicas": ready}}
        total = sum(one["spec"]["replicas"] for one in sets.values())
        available = sum(one["status"]["availableReplicas"] for one in sets.values())
        assert total <= replicas + max_surge
        assert available >= replicas - max_unavailable
    assert {image: one["spec"]["replicas"] for image, one in sets.items()} == {"web:2": replicas}
    (available,) = wanted["status"]["conditions"]
    assert (available["type"], available["status"]) == ("Available", "True")


@pytest.mark.parametrize(
    ("old_size", "terminating", "sizes"),
    [
        pytest.param(3, 0, {"web:1": 0}, id="old ones go"),
        pytest.param(0, 1, {}, id="nothing comes while old ones still run"),
        pytest.param(0, 0, {"web:2": 3}, id="all new ones come at once"),
    ],
)
def test_recreate_ends_all_old_pods_first(old_size, terminating, sizes):
    wanted = deployment(3, "web:2", recreates=True)
    actions = steps(wanted, replica_set(wanted, "web:1", old_size, terminating=terminating))
    written = [one for one in actions if isinstance(one, Create | Update) and one.kind is REPLICA_SET]
    assert {image_of(one.obj): one.obj["spec"]["replicas"] for one in written} == sizes
