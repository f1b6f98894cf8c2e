"""The pods that a manifest would create, as the API server and the controllers make them."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.engine.model.pods import PodSpec
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.controllers.actions import Create
from scheduler.sandbox.devcluster.controllers.workloads import plan_daemon_set, target_node
from scheduler.sandbox.devcluster.kinds import DAEMON_SET, NODE, POD
from scheduler.tools.explain.formats.json_values import ManifestError
from scheduler.tools.explain.formats.manifests import parse_manifest
from tests.support import build
from tests.support import workloads as support
from tests.support.build import Json
from tests.support.json_cluster import loaded

CLAIM_SPEC = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


def workload(kind: str, n_replicas: int | None = None, spec: Json | None = None, **template: Any) -> Json:
    """Return the workload web of pods with these keywords of build.pod."""
    return support.workload(kind, "web", build.pod(**template), n_replicas, **(spec or {}))


def parse(document: object, namespace: str = "default") -> Any:
    return parse_manifest(document, namespace=namespace, semantics=DEFAULT_SEMANTICS)


def test_a_deployments_pods_belong_to_a_new_revision() -> None:
    """They have a hash label, for matchLabelKeys; their owner is the new ReplicaSet."""
    spread = build.spread(build.ZONE, build.selector("app=web"), match_label_keys=["pod-template-hash"])
    made = parse(workload("Deployment", 3, labels={"app": "web"}, spread=[spread]))
    pod = made.pod(0)
    assert made.n_replicas == 3
    assert pod["metadata"]["labels"] == {"app": "web", "pod-template-hash": "new-revision-of-web"}
    (constraint,) = pod["spec"]["topologySpreadConstraints"]
    assert constraint["labelSelector"]["matchExpressions"] == [
        {"key": "pod-template-hash", "operator": "In", "values": ["new-revision-of-web"]}
    ]
    (owner,) = pod["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == (
        "ReplicaSet",
        "web-new-revision-of-web",
        True,
    )
    assert made.owner["spec"]["selector"]["matchLabels"] == {
        "app": "web",
        "pod-template-hash": "new-revision-of-web",
    }


@pytest.mark.parametrize(("cpu", "revision"), [("1", "running"), ("2", "new-revision-of-web")])
def test_further_replicas_are_of_the_revision_that_runs(cpu: str, revision: str) -> None:
    """Unless the manifest has another template. The API server adds labels to the running pods."""
    anti = build.affinity(anti_required=[build.term("kubernetes.io/hostname", build.selector("app=web"))])
    document = workload("Deployment", 3, labels={"app": "web"}, affinity=anti, cpu="1")
    manifest = parse(document)
    running = {"kind": "Pod", **manifest.of_revision("running").pod(0)}
    running["metadata"]["labels"] |= {build.ZONE: "a"}
    running["spec"] |= {"nodeName": "n"}
    cluster = loaded(build.node("n"), running)
    document["spec"]["template"]["spec"]["containers"] = [build.container(requests={"cpu": cpu})]
    (pod,) = cluster.create_pods(parse(document), 1)
    assert pod.labels["pod-template-hash"] == revision
    assert pod.owner is not None
    assert pod.owner.name == f"web-{revision}"


def test_further_pods_of_a_stateful_set_follow_those_that_run() -> None:
    """They take none of their claims, and are of the same revision; the second one is missing, and comes first."""
    data = {"metadata": {"name": "data"}, "spec": CLAIM_SPEC}
    keyed = build.spread(build.ZONE, build.selector("app=db"), match_label_keys=["controller-revision-hash"])
    document = workload(
        "StatefulSet", labels={"app": "db"}, spread=[keyed], spec={"volumeClaimTemplates": [data]}
    )
    manifest = parse(document).of_revision("running")
    running = [{"kind": "Pod", **manifest.pod(number)} for number in (0, 2)]
    for pod in running:
        pod["spec"] |= {"nodeName": "n"}
    pods = loaded(build.node("n"), *running).create_pods(parse(document), 2)
    assert [(pod.name, pod.labels["controller-revision-hash"]) for pod in pods] == [
        ("web-1", "running"),
        ("web-3", "running"),
    ]
    assert [volume.claim_name(pod.name) for pod in pods for volume in pod.spec.claim_volumes] == [
        "data-web-1",
        "data-web-3",
    ]


def test_a_stateful_sets_pods_have_name_and_index_labels() -> None:
    made = parse(workload("StatefulSet", 2, labels={"app": "db"}))
    assert [made.pod(number)["metadata"]["name"] for number in range(2)] == ["web-0", "web-1"]
    assert made.pod(1)["metadata"]["labels"] == {
        "app": "db",
        "statefulset.kubernetes.io/pod-name": "web-1",
        "apps.kubernetes.io/pod-index": "1",
        "controller-revision-hash": "new-revision-of-web",
    }


@pytest.mark.parametrize(
    ("spec", "n_pods"),
    [
        ({"parallelism": 4}, 4),
        ({"parallelism": 4, "completions": 2}, 2),
        ({"completions": 2}, 1),
        ({"parallelism": 0}, 0),
    ],
)
def test_a_job_has_parallelism_many_pods_but_no_more_than_completions(spec: Json, n_pods: int) -> None:
    made = parse(workload("Job", spec=spec))
    assert (made.n_replicas, made.pod(0)["metadata"]["labels"]["job-name"]) == (n_pods, "web")


@pytest.mark.parametrize(
    "template",
    [
        pytest.param({}, id="nothing said"),
        pytest.param({"node_selector": {"disk": "ssd"}}, id="a selector"),
        pytest.param({"tolerations": [{"operator": "Exists"}]}, id="a toleration of its own"),
        pytest.param(
            {"affinity": build.affinity(node_required=[build.node_term("disk in ssd")])}, id="node affinity"
        ),
    ],
)
def test_a_daemon_sets_pods_are_those_of_the_embedded_controller(template: Json) -> None:
    """One pod for each node that takes it, with the same affinity and tolerations. The implementations are apart."""
    nodes = [
        build.node("plain"),
        build.node("ssd", labels={"disk": "ssd"}),
        build.node("tainted", labels={"disk": "ssd"}, taints=["dedicated=gpu:NoSchedule"]),
        build.node("cordoned", labels={"disk": "ssd"}, unschedulable=True),
    ]
    document = workload("DaemonSet", labels={"app": "a"}, **template)
    store = DevCluster().store
    for node in nodes:
        store.rewrite(NODE, node)
    stored = store.create(DAEMON_SET, "default", document)
    theirs = [action.obj for action in plan_daemon_set(stored, store) if isinstance(action, Create)]
    manifest = parse(document)
    named = [names_of(pod.spec) for pod in loaded(*nodes).create_pods(manifest, 1)]
    assert named == sorted([target_node(pod)] for pod in theirs)
    for number, pod in enumerate(theirs):
        made = manifest.pod(number, target_node(pod))["spec"]
        assert made["affinity"] == pod["spec"]["affinity"]
        assert all(one in made["tolerations"] for one in pod["spec"]["tolerations"])


def names_of(spec: PodSpec) -> list[str]:
    """Return the nodes that the pod's affinity names."""
    terms = spec.required_node_affinity.terms or ()
    return [name for term in terms for requirement in term.names for name in requirement.values]


def test_a_cron_jobs_pods_are_those_of_its_job() -> None:
    job = workload("Job", spec={"parallelism": 2})
    document = {**job, "kind": "CronJob", "metadata": {"name": "nightly"}}
    document["spec"] = {"jobTemplate": {"spec": job["spec"]}}
    made = parse(document)
    assert (made.kind, made.n_replicas, made.pod(1)["metadata"]["name"]) == ("Job", 2, "nightly-1")


@pytest.mark.parametrize(
    ("metadata", "names"),
    [({"name": "web"}, ["web", "web-1", "web-2"]), ({"generateName": "web-"}, ["web-", "web-1", "web-2"])],
)
def test_replicas_of_a_saved_pod_are_new_and_have_distinct_names_and_uids(
    metadata: Json, names: list[str]
) -> None:
    """For `simulate --replicas`. A Deployment and a StatefulSet of the same name have pods of their own too."""
    made = parse({**build.pod(node="a"), "metadata": metadata})
    pods = [made.pod(number) for number in range(3)]
    assert [pod["metadata"]["name"] for pod in pods] == names
    assert not any("nodeName" in pod["spec"] for pod in pods)
    pods += [parse(workload(kind)).pod(0) for kind in ("Deployment", "StatefulSet")]
    uids = {pod["metadata"]["uid"] for pod in pods}
    assert len(uids) == 5
    assert all(uid.startswith("not-created/") for uid in uids)


LIMITED = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}
OF_THE_POD = {"limits": {"cpu": "4", "memory": "1Gi", "hugepages-2Mi": "4Mi"}}
KEYED = {**build.term(build.ZONE, build.selector("tier=front")), "matchLabelKeys": ["app", "absent"]}


@pytest.mark.parametrize(
    ("container", "spec"),
    [
        pytest.param({}, {}, id="nothing said"),
        pytest.param({"resources": LIMITED}, {}, id="limits"),
        pytest.param({"ports": [{"containerPort": 80}]}, {"hostNetwork": True}, id="host network"),
        pytest.param(
            {"ports": [{"containerPort": 80, "hostPort": 0}]}, {"hostNetwork": True}, id="a host port of 0"
        ),
        pytest.param(
            {"resources": {"requests": {"cpu": "1"}}}, {"resources": OF_THE_POD}, id="limits of the pod"
        ),
        pytest.param(
            {},
            {"tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]},
            id="a toleration of its own",
        ),
        pytest.param({}, {"affinity": build.affinity(anti_required=[KEYED])}, id="label keys"),
    ],
)
def test_a_pods_spec_is_what_the_embedded_api_server_would_store(container: Json, spec: Json) -> None:
    """In the fields that a scheduler reads. The two implementations are independent."""
    spec = {"containers": [{"name": "c", "image": "i", **container}], **spec}
    metadata = {"name": "p", "labels": {"app": "web"}}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    cluster = DevCluster()
    stored = cluster.store.create(POD, "default", document)["spec"]
    made: Any = parse(document).pod(0)["spec"]
    for field in ("affinity", "tolerations", "hostNetwork", "resources"):
        assert made.get(field) == stored.get(field), field
    for ours, theirs in zip(made["containers"], stored["containers"], strict=True):
        assert ours.get("resources", {}).get("requests") == theirs.get("resources", {}).get("requests")
        ports = [[port.get("hostPort") for port in c.get("ports") or ()] for c in (ours, theirs)]
        assert ports[0] == ports[1]


def test_limits_of_a_pod_as_a_whole_are_requests_of_what_no_container_requests() -> None:
    document = workload("Deployment", cpu="1")
    document["spec"]["template"]["spec"]["resources"] = OF_THE_POD
    requests = parse(document).pod(0)["spec"]["resources"]["requests"]
    assert requests == {"memory": "1Gi", "hugepages-2Mi": "4Mi"}


def test_a_runtime_class_which_may_ask_for_more_is_told() -> None:
    cluster, document = loaded(build.node("n")), workload("Deployment")
    document["spec"]["template"]["spec"]["runtimeClassName"] = "kata"
    cluster.create_pods(parse(document), 2)
    assert [*cluster.assumptions] == [
        "RuntimeClass kata is not read: its overhead and its nodes do not count"
    ]


def named(kind: str, api_version: str = "v1", **spec: object) -> Json:
    return {"kind": kind, "apiVersion": api_version, "metadata": {"name": "p"}, "spec": spec}


def with_claims(templates: object) -> Json:
    return workload("StatefulSet", spec={"volumeClaimTemplates": templates})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "kind: found nothing, expected one of Pod, Deployment, ReplicaSet, StatefulSet, DaemonSet"),
        (named("Service"), "kind: found 'Service', expected one of"),
        (named("Pod", "v2"), "apiVersion: found 'v2', expected v1"),
        (named("Deployment"), "apiVersion: found 'v1', expected apps/v1"),
        ({"kind": "Pod", "apiVersion": "v1"}, "metadata: found nothing, expected an object"),
        ({**named("Pod"), "metadata": {}}, "metadata.name: found nothing, expected a name"),
        ({**named("Pod"), "metadata": {"name": "p", "namespace": [5]}}, "metadata.namespace: found a list"),
        (
            {**named("Pod"), "metadata": {"name": "p", "namespace": "a b/c"}},
            "metadata.namespace: found 'a b/c'",
        ),
        ({**named("Pod"), "spec": None}, "spec: found nothing, expected an object"),
        (named("Job", "batch/v1"), "spec.template: found nothing, expected an object"),
        (
            named("ReplicaSet", "apps/v1", replicas="3", template={"spec": {}}),
            "spec.replicas: found '3', expected a number of pods",
        ),
        (["a list"], "found a list, expected an object"),
        (with_claims("data"), "spec.volumeClaimTemplates: "),
        (with_claims(["data"]), "spec.volumeClaimTemplates[0]: "),
        (with_claims([{"spec": {}}]), "spec.volumeClaimTemplates[0].metadata.name: "),
        (with_claims([{"metadata": {"name": "data"}}]), "spec.volumeClaimTemplates[0].spec: "),
        (
            named("CronJob", "batch/v1", jobTemplate={"spec": {}}),
            "spec.jobTemplate.spec.template: found nothing",
        ),
    ],
)
def test_an_invalid_manifest_is_reported_with_its_field(document: object, message: str) -> None:
    with pytest.raises(ManifestError) as caught:
        parse(document)
    assert message in str(caught.value)


def test_a_stateful_set_makes_a_claim_of_each_template_for_each_pod() -> None:
    """It replaces a volume of its name; the others stay."""
    templates = [{"metadata": {"name": "data"}, "spec": CLAIM_SPEC}]
    document = with_claims(templates)
    scratch = {"name": "scratch", "emptyDir": {}}
    document["spec"]["template"]["spec"]["volumes"] = [{"name": "data", "emptyDir": {}}, scratch]
    made = parse(document)
    assert made.pod(1)["spec"]["volumes"] == [
        {"name": "data", "persistentVolumeClaim": {"claimName": "data-web-1"}},
        scratch,
    ]
    (claim,) = made.claims(1)
    assert claim["metadata"]["name"] == "data-web-1"
    assert claim["spec"] == CLAIM_SPEC


def test_an_ephemeral_volume_makes_a_claim_that_its_pod_owns() -> None:
    template = {"metadata": {"annotations": {"a": "b"}}, "spec": CLAIM_SPEC}
    document = workload("Deployment")
    document["spec"]["template"]["spec"]["volumes"] = [
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}
    ]
    made = parse(document)
    (claim,) = made.claims(0)
    assert claim["metadata"]["name"] == "web-0-scratch"
    assert claim["metadata"]["annotations"] == {"a": "b"}
    assert claim["metadata"]["ownerReferences"] == [
        {"uid": made.pod(0)["metadata"]["uid"], "controller": True}
    ]
