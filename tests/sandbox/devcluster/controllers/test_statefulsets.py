"""The StatefulSet controller: ordinals in order, replacement from above."""

import pytest

from scheduler.sandbox.devcluster.controllers.actions import Create, Delete
from scheduler.sandbox.devcluster.controllers.ownership import REVISION_LABEL
from scheduler.sandbox.devcluster.controllers.statefulsets import plan, revision_name
from scheduler.sandbox.devcluster.kinds import JsonObject
from tests.support.workload_objects import LABELS, meta, of, pod, status_after, template


def stateful_set(size=3, *, image="web:1", **spec):
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": meta("db"),
        "spec": {
            "replicas": size,
            "selector": {"matchLabels": LABELS},
            "template": template(image),
            "serviceName": "db",
            **spec,
        },
        "status": {"replicas": 0},
    }


def member(owner, number, *, ready=True, outdated=False, deleted=False):
    revision = "old" if outdated else revision_name(owner)
    labels = {**LABELS, REVISION_LABEL: revision}
    since: JsonObject = {"phase": "Running", "ready_for_s": 50} if ready else {}
    return pod(f"db-{number}", owner, node="n1", labels=labels, deleted=deleted, **since)


def steps(actions):
    made = [f"+{a.obj['metadata']['name']}" for a in of(actions, Create)]
    return made + [f"-{a.obj['metadata']['name']}" for a in of(actions, Delete)]


#: Sets without claim templates have no claims.
NO_CLAIMS: dict[str, JsonObject] = {}

PARALLEL = {"podManagementPolicy": "Parallel"}


@pytest.mark.parametrize(
    ("spec", "members", "expected"),
    [
        pytest.param({}, [], ["+db-0"], id="the first pod alone"),
        pytest.param({}, [{}], ["+db-1"], id="the next once the one below is ready"),
        pytest.param({}, [{"ready": False}], [], id="it waits for the one below"),
        pytest.param({}, [{"deleted": True}], [], id="it waits for a terminating one to go"),
        pytest.param(PARALLEL, [], ["+db-0", "+db-1", "+db-2"], id="all at once in parallel"),
        pytest.param({"ordinals": {"start": 5}}, [], ["+db-5"], id="ordinals may start elsewhere"),
        pytest.param({}, [{}] * 5, ["-db-4"], id="the highest goes first"),
        pytest.param(PARALLEL, [{}] * 5, ["-db-4", "-db-3"], id="all surplus at once in parallel"),
        pytest.param({}, [{}, {"outdated": True}, {"outdated": True}], ["-db-2"], id="updates begin above"),
        pytest.param(
            {}, [{"outdated": True}, {"outdated": True}, {"ready": False}], [], id="one by one, when healthy"
        ),
        pytest.param(
            {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}},
            [{"outdated": True}, {"outdated": True}, {}],
            [],
            id="none below the partition",
        ),
        pytest.param(
            {"updateStrategy": {"type": "OnDelete"}},
            [{"outdated": True}] * 3,
            [],
            id="on delete nothing is replaced",
        ),
    ],
)
def test_one_step_at_a_time(spec, members, expected):
    owner = stateful_set(**spec)
    pods = [member(owner, number, **one) for number, one in enumerate(members)]
    assert steps(plan(owner, pods, NO_CLAIMS.get)) == expected


def test_a_pod_keeps_its_name_and_knows_its_ordinal():
    (made,) = of(plan(stateful_set(), [], NO_CLAIMS.get), Create)
    labels = made.obj["metadata"]["labels"]
    assert made.obj["metadata"]["name"] == "db-0"
    assert labels["statefulset.kubernetes.io/pod-name"] == "db-0"
    assert labels["apps.kubernetes.io/pod-index"] == "0"
    assert (made.obj["spec"]["hostname"], made.obj["spec"]["subdomain"]) == ("db-0", "db")


def test_status_tells_the_old_revision_from_the_new():
    owner = stateful_set(2)
    owner["status"] = {"currentRevision": "old"}
    pods = [member(owner, 0, outdated=True), member(owner, 1)]
    status = status_after(plan(owner, pods, NO_CLAIMS.get))
    assert (status["currentReplicas"], status["updatedReplicas"], status["readyReplicas"]) == (1, 1, 2)
    assert (status["currentRevision"], status["updateRevision"]) == ("old", revision_name(owner))
