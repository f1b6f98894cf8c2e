"""Documents of manifests: lists of any size, JobSets, other versions; what is read and what is left out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.daemon.settings.problems import InvalidSettingsError
from scheduler.engine.model.semantics import DEFAULT_SEMANTICS
from scheduler.errors import SettingsError
from scheduler.tools.explain.answers import explain_manifests
from scheduler.tools.explain.formats.manifest_documents import (
    ManifestFile,
    numbered_documents,
    sorted_documents,
)
from scheduler.tools.explain.formats.manifests import Manifest
from scheduler.tools.explain.input_files import add_other_objects
from tests.support import build
from tests.support.json_cluster import loaded
from tests.support.storage_objects import claim, storage_class, volume
from tests.support.workloads import workload

POD_SPEC = {"containers": [{"name": "c", "image": "i"}]}


def read(*documents: build.Json, text: str = "") -> ManifestFile:
    text = text or "\n---\n".join(map(json.dumps, documents))
    return sorted_documents(
        numbered_documents(text, "m.yaml"), "m.yaml", namespace="default", semantics=DEFAULT_SEMANTICS
    )


def made(manifest: Manifest, number: int) -> Any:
    return manifest.pod(number)


def pod(name: str, **metadata: object) -> build.Json:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}, "spec": POD_SPEC}


def job_set(**annotations: str) -> build.Json:
    pod = build.pod(labels={"app": "a"})
    jobs = [
        {"name": "driver", "template": {"spec": workload("Job", "", pod)["spec"]}},
        {"name": "workers", "replicas": 2, "template": {"spec": workload("Job", "", pod, 3)["spec"]}},
    ]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "train", "annotations": annotations},
        "spec": {"replicatedJobs": jobs},
    }


def worker_set(annotations: dict[str, str] | None = None, size: int = 3) -> build.Json:
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "llm", "annotations": annotations or {}},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": size, "workerTemplate": {"spec": POD_SPEC}}},
    }


def test_each_unknown_field_of_each_document_is_a_line() -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"selectr": {}}}
    with pytest.raises(InvalidSettingsError) as caught:
        read({**pod("a"), "spec": {**POD_SPEC, "afinity": {}}}, service)
    assert caught.value.lines == (
        "m.yaml: document 1: spec.afinity: unknown field; did you mean affinity?",
        "m.yaml: document 2: spec.selectr: unknown field; did you mean selector?",
    )


def test_unknown_fields_of_kinds_that_are_left_out_are_not_looked_for() -> None:
    ingress = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "spek": {}}
    assert len(read(pod("a"), ingress).manifests) == 1


@pytest.mark.parametrize("kind", ["List", "PodList"])
def test_a_list_has_no_limit_but_the_files(kind: str) -> None:
    """Of 2 MiB here; the items of a list of one kind need not name it."""
    items = [pod(f"p{number}", annotations={"note": "x" * 7_000}) for number in range(300)]
    if kind == "PodList":
        for item in items:
            del item["kind"], item["apiVersion"]
    listed = {"apiVersion": "v1", "kind": kind, "items": items}
    found = read(text=json.dumps(listed, indent=4))
    assert [manifest.name for manifest in found.manifests][-1] == "p299"


def test_an_item_of_a_list_is_named_by_its_place() -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": [pod("a"), {**pod("b"), "spek": {}}]}
    with pytest.raises(
        SettingsError, match=r"^m\.yaml: items\[1\]: spek: unknown field; did you mean spec\?$"
    ):
        read(listed)


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "Pod", "kind": "Pod"}',
        '{"kind": "Pod", "a": "\\ud800"}',
        '{"kind": "Pod", "a": ' + "[" * 120 + "]" * 120 + "}",
    ],
)
def test_json_that_is_faulty_is_refused_as_yaml_is(text: str) -> None:
    """A repeated field, half a character, endless nesting."""
    with pytest.raises(SettingsError):
        read(text=text)


def test_pods_that_controllers_made_are_left_out_beside_what_creates_pods() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "u", "controller": True}
    controlled = pod("made", ownerReferences=[owner])
    assert [each.name for each in read(controlled).manifests] == ["made"]
    both = read(controlled, pod("own"))
    assert [each.name for each in both.manifests] == ["own"]
    assert add_other_objects(both, loaded()) == ("read Pod; left out Pod of a controller")


def test_what_is_read_and_what_is_left_out_is_one_sentence() -> None:
    metadata = {"name": "x"}
    others: list[build.Json] = [
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"selector": {"a": "b"}}},
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata},
        {"apiVersion": "v1", "kind": "Secret", "metadata": metadata},
        {"apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "metadata": metadata},
        {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata},
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": 1},
    ]
    cluster = loaded()
    assert add_other_objects(read(pod("a"), pod("b"), *others), cluster) == (
        "read Pod (2), Service, PriorityClass; left out Secret (2), PodDisruptionBudget of policy/v1beta1 instead of"
        " policy/v1, Job of batch.volcano.sh/v1alpha1"
    )
    assert add_other_objects(read(pod("a")), cluster) == ""


def test_a_claim_is_read_after_what_it_depends_on() -> None:
    core, cluster = {"apiVersion": "v1"}, loaded()
    of_class = {"apiVersion": "storage.k8s.io/v1", **storage_class("s", mode="Immediate")}
    found = read(pod("a"), {**core, **claim("c", "s")}, {**core, **volume("v", "s")}, of_class)
    add_other_objects(found, cluster)
    bound = cluster.state.volumes.claim("default/c")
    assert bound is not None and bound.volume_name == "v"


@pytest.mark.parametrize("version", ["v1", "v1beta1", "v1beta2"])
def test_claims_and_slices_of_earlier_versions_are_read(version: str) -> None:
    devices = {"deviceClassName": "gpu", "count": 2}
    request = {"name": "r", **devices} if version == "v1beta1" else {"name": "r", "exactly": devices}
    attributes = {"attributes": {"a": {"string": "b"}}}
    device = {"name": "d", "basic": attributes} if version == "v1beta1" else {"name": "d", **attributes}
    of_slice = {"driver": "x", "nodeName": "n", "pool": {"name": "p", "resourceSliceCount": 1}}
    head = {"apiVersion": f"resource.k8s.io/{version}", "metadata": {"name": "c"}}
    found = read(
        pod("a"),
        {**head, "kind": "ResourceClaim", "spec": {"devices": {"requests": [request]}}},
        {**head, "kind": "ResourceSlice", "spec": {**of_slice, "devices": [device]}},
    )
    cluster = loaded()
    assert add_other_objects(found, cluster) == "read Pod, ResourceClaim, ResourceSlice"
    claim = cluster.state.devices.claim("default/c")
    assert claim is not None
    (asked,) = claim.requests
    assert asked.exactly is not None
    assert (asked.exactly.class_name, asked.exactly.count) == ("gpu", 2)
    (published,) = cluster.state.devices.slices()
    assert list(published.devices[0].attributes) != []


@pytest.mark.parametrize(
    ("kind", "api_version", "selector"),
    [
        *(
            (kind, "apps/v1", {"matchLabels": {"a": "c"}})
            for kind in ("Deployment", "ReplicaSet", "DaemonSet")
        ),
        ("StatefulSet", "apps/v1", {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}),
        ("ReplicationController", "v1", {"a": "c"}),
    ],
)
def test_a_selector_that_does_not_match_the_templates_labels_is_an_error(
    kind: str, api_version: str, selector: build.Json
) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": POD_SPEC}
    document = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "w"}}
    with pytest.raises(SettingsError) as caught:
        read({**document, "spec": {"selector": selector, "template": template}})
    assert str(caught.value) == (
        f"m.yaml: spec.selector: found {json.dumps(selector)}, expected one that matches the template's labels"
        ' {"a": "b"}'
    )


def test_a_replication_controller_selects_by_its_templates_labels() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": POD_SPEC}
    document = {"apiVersion": "v1", "kind": "ReplicationController", "metadata": {"name": "rc"}}
    (manifest,) = read({**document, "spec": {"replicas": 2, "template": template}}).manifests
    assert manifest.n_replicas == 2
    assert manifest.owner is not None
    assert manifest.owner["spec"] == {"selector": {"a": "b"}}


def test_a_job_set_creates_indexed_jobs() -> None:
    manifests = read(job_set()).manifests
    assert [(each.kind, each.name, each.n_replicas) for each in manifests] == [
        ("Job", "train-driver-0", 1),
        ("Job", "train-workers-0", 3),
        ("Job", "train-workers-1", 3),
    ]
    labels = made(manifests[2], 1)["metadata"]["labels"]
    set_labels = {name.partition("/")[2]: labels[name] for name in labels if name.startswith("jobset")}
    assert set_labels.pop("job-key")
    of_job = {"job-index": "1", "job-global-index": "2"}
    of_replicated = {"replicatedjob-name": "workers", "replicatedjob-replicas": "2"}
    assert set_labels == {"jobset-name": "train", **of_replicated, **of_job}
    assert labels["batch.kubernetes.io/job-completion-index"] == "1"
    assert labels["app"] == "a"


def test_the_pods_of_a_leader_worker_set_are_leaders_and_workers() -> None:
    manifests = read(worker_set()).manifests
    assert [[made(each, n)["metadata"]["name"] for n in range(each.n_replicas)] for each in manifests] == [
        ["llm-0"],
        ["llm-0-1", "llm-0-2"],
        ["llm-1"],
        ["llm-1-1", "llm-1-2"],
    ]
    worker = made(manifests[3], 1)["metadata"]
    assert worker["labels"]["leaderworkerset.sigs.k8s.io/group-index"] == "1"
    assert worker["labels"]["apps.kubernetes.io/pod-index"] == "2"
    assert worker["annotations"]["leaderworkerset.sigs.k8s.io/size"] == "3"
    assert len(read(worker_set(size=1)).manifests) == 2


@pytest.mark.parametrize(
    ("wanted", "label", "n_parts"),
    [
        (job_set(**{"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}), "jobset.sigs.k8s.io/job-key", 3),
        (
            worker_set({"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}),
            "leaderworkerset.sigs.k8s.io/group-key",
            2,
        ),
    ],
)
def test_an_exclusive_topology_holds_each_part_together_and_others_off(
    wanted: build.Json, label: str, n_parts: int
) -> None:
    keys = set()
    for manifest in read(wanted).manifests:
        document = made(manifest, 0)
        key = document["metadata"]["labels"][label]
        keys.add(key)
        rules = [
            document["spec"]["affinity"][field]["requiredDuringSchedulingIgnoredDuringExecution"]
            for field in ("podAffinity", "podAntiAffinity")
        ]
        assert [term["topologyKey"] for (term,) in rules] == ["rack", "rack"]
        ((own,), (exists, others)) = (term["labelSelector"]["matchExpressions"] for (term,) in rules)
        assert own == {"key": label, "operator": "In", "values": [key]}
        assert (exists, others) == ({"key": label, "operator": "Exists"}, {**own, "operator": "NotIn"})
    assert len(keys) == n_parts


def test_a_fault_in_a_job_sets_template_is_named_by_its_path() -> None:
    document = job_set()
    document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["metadata"] = 3
    with pytest.raises(
        SettingsError, match=r"spec\.replicatedJobs\[0\]\.template\.spec\.template\.metadata: found"
    ):
        read(document)


def test_claims_that_a_pod_group_shares_are_noted() -> None:
    spec = {"resourceClaims": [{"name": "c", "resourceClaimTemplateName": "t"}]}
    api_version, metadata = "scheduling.k8s.io/v1alpha2", {"name": "g"}
    group = {"apiVersion": api_version, "kind": "PodGroup", "metadata": metadata}
    cluster = loaded()
    policy = {"schedulingPolicy": {"gang": {"minCount": 1}}}
    add_other_objects(read(pod("a"), {**group, "spec": {**policy, **spec}}), cluster)
    (note,) = cluster.assumptions
    assert note.startswith("spec.resourceClaims of a PodGroup has no effect: each pod has claims of its own")


def explained(*documents: build.Json) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return pod, message and notes of what is explained of the documents in a cluster of one small node."""
    cluster = loaded(build.node("n", allocatable={"cpu": "1", "pods": "9"}))
    answers = explain_manifests(cluster, read(*documents).manifests)
    return [(answer.pod, answer.message, answer.notes) for answer in answers]


def test_the_jobs_of_a_set_are_explained_once_for_each_template() -> None:
    found = explained(job_set())
    assert [pod for pod, *_ in found] == ["train-driver-0-0", "train-workers-0-0"]
    assert found[1][2][0] == "the same holds for 1 more workload: Job train-workers-1"
    assert len(explained(job_set(**{"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}))) == 2
    assert [pod for pod, *_ in explained(worker_set())] == ["llm-0"]


def test_the_workloads_of_a_group_are_explained_together() -> None:
    group = {"affinity-scheduler.io/pod-group": "g", "affinity-scheduler.io/pod-group-min-count": "4"}
    template = build.pod(labels=group, spec={"schedulerName": "affinity-scheduler"})
    ((pod, message, notes),) = explained(*(workload("Job", name, template, 2) for name in ("a", "b")))
    assert (pod, message) == ("a-0", "fits with 4 pods of its group; n would be chosen now")
    assert notes[0] == "the same holds for 1 more workload: Job b"
