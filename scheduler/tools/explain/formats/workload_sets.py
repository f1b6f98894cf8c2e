"""
The Jobs that a JobSet creates and the StatefulSets that a LeaderWorkerSet creates, as documents.

With an exclusive topology all pods of a job, or of a leader with its workers, are in one domain with no other's. The
followers' node selector, which names their leader's domain, is here the leader's affinity.

Source: jobset v1alpha2 and leaderworkerset v1, pkg/controllers and pkg/webhooks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from scheduler.engine.syntax.match_label_keys import Json
from scheduler.tools.explain.formats.json_values import as_list, as_mapping, as_number, as_texts

_JOB_SET: Final = "jobset.sigs.k8s.io"
_LWS: Final = "leaderworkerset.sigs.k8s.io"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


class _Exclusive(NamedTuple):
    """The rule that pods with this value of a label have a domain of their own; '' for no topology is no rule."""

    label: str
    key: str
    topology: str
    #: The namespaces that it is about.
    reach: Json


def jobs_of(job_set: Json, namespace: str, name: str) -> Iterator[tuple[str, Json]]:
    """Yield the Jobs of a JobSet, each with the path of the field that it is made from. Raises ManifestError."""
    spec = as_mapping(job_set.get("spec"), "spec")
    topology = f"alpha.{_JOB_SET}/exclusive-topology"
    of_set = _annotations(job_set, "metadata")
    n_before = 0
    for number, found in enumerate(as_list(spec.get("replicatedJobs"), "spec.replicatedJobs")):
        path = f"spec.replicatedJobs[{number}]"
        replicated = as_mapping(found, path)
        template = as_mapping(replicated.get("template"), f"{path}.template")
        of_job = {**of_set, **_annotations(template, f"{path}.template.metadata")}
        job_spec = as_mapping(template.get("spec"), f"{path}.template.spec")
        n_replicas = as_number(replicated, "replicas", 1, path)
        for index in range(n_replicas):
            job = f"{name}-{replicated.get('name')}-{index}"
            key = _key(namespace, job)
            labels = {
                f"{_JOB_SET}/jobset-name": name,
                f"{_JOB_SET}/replicatedjob-name": str(replicated.get("name")),
                f"{_JOB_SET}/replicatedjob-replicas": str(n_replicas),
                f"{_JOB_SET}/job-index": str(index),
                f"{_JOB_SET}/job-global-index": str(n_before + index),
                f"{_JOB_SET}/job-key": key,
            }
            rule = _Exclusive(f"{_JOB_SET}/job-key", key, of_job.get(topology, ""), {"namespaceSelector": {}})
            at = f"{path}.template.spec.template"
            pods = _labelled(job_spec.get("template"), at, labels, _kept(of_job, topology), rule)
            made = {"completionMode": "Indexed", **job_spec, "template": pods}
            yield f"{path}.template.", _document("batch/v1", "Job", namespace, job, made)
        n_before += n_replicas


def stateful_sets_of(workers: Json, namespace: str, name: str) -> Iterator[tuple[str, Json]]:
    """Yield the StatefulSets of a LeaderWorkerSet, one for each leader and one for its workers."""
    path = "spec.leaderWorkerTemplate"
    spec = as_mapping(workers.get("spec"), "spec")
    templates = as_mapping(spec.get("leaderWorkerTemplate"), path)
    size, topology = as_number(templates, "size", 1, path), f"{_LWS}/exclusive-topology"
    annotations = _kept(_annotations(workers, "metadata"), topology)
    leader_field = "leaderTemplate" if templates.get("leaderTemplate") is not None else "workerTemplate"
    for group in range(as_number(spec, "replicas", 1, "spec")):
        leader = f"{name}-{group}"
        key = _key(namespace, leader)
        rule = _Exclusive(f"{_LWS}/group-key", key, annotations.get(topology, ""), {})
        of_group = {f"{_LWS}/name": name, f"{_LWS}/group-index": str(group), f"{_LWS}/group-key": key}
        of_leaders = {f"{_LWS}/name": name, f"{_LWS}/worker-index": "0"}
        for field, owner, labels, selector, start, n_pods in (
            (leader_field, name, {**of_group, **of_leaders}, of_leaders, group, 1),
            ("workerTemplate", leader, of_group, of_group, 1, size - 1),
        ):
            at = f"{path}.{field}"
            told = {**annotations, f"{_LWS}/size": str(size)}
            made = {
                "replicas": max(0, n_pods),
                "ordinals": {"start": start},
                "selector": {"matchLabels": selector},
                "template": _labelled(templates.get(field), at, labels, told, rule),
                "volumeClaimTemplates": templates.get("volumeClaimTemplates"),
            }
            if n_pods > 0:
                yield f"{at}.", _document("apps/v1", "StatefulSet", namespace, owner, made)


def _document(api_version: str, kind: str, namespace: str, name: str, spec: Json) -> Json:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


def _labelled(
    found: object, path: str, labels: Mapping[str, str], annotations: Mapping[str, str], rule: _Exclusive
) -> Json:
    """Return the template of pods with these labels and annotations, and the rule of an exclusive topology if any."""
    template = as_mapping(found, path)
    metadata = as_mapping(template.get("metadata") or {}, f"{path}.metadata")
    of_pods = as_mapping(metadata.get("labels") or {}, f"{path}.metadata.labels")
    own = as_mapping(metadata.get("annotations") or {}, f"{path}.metadata.annotations")
    spec = as_mapping(template.get("spec"), f"{path}.spec")
    return {
        **template,
        "metadata": {**metadata, "labels": {**of_pods, **labels}, "annotations": {**annotations, **own}},
        "spec": _with_rule(spec, f"{path}.spec", rule) if rule.topology else spec,
    }


def _with_rule(spec: Json, path: str, rule: _Exclusive) -> Json:
    """Return the pod's spec with affinity to pods with this value of the label, and anti-affinity to other values."""
    affinity = dict(as_mapping(spec.get("affinity") or {}, f"{path}.affinity"))
    own = {"key": rule.label, "operator": "In", "values": [rule.key]}
    others = [{"key": rule.label, "operator": "Exists"}, {**own, "operator": "NotIn"}]
    for field, expressions in (("podAffinity", [own]), ("podAntiAffinity", others)):
        at = f"{path}.affinity.{field}"
        rules = as_mapping(affinity.get(field) or {}, at)
        term = {
            "labelSelector": {"matchExpressions": expressions},
            "topologyKey": rule.topology,
            **rule.reach,
        }
        affinity[field] = {**rules, _REQUIRED: [*as_list(rules.get(_REQUIRED), f"{at}.{_REQUIRED}"), term]}
    return {**spec, "affinity": affinity}


def _annotations(document: Json, path: str) -> Mapping[str, str]:
    metadata = as_mapping(document.get("metadata") or {}, path)
    return as_texts(as_mapping(metadata.get("annotations") or {}, f"{path}.annotations"))


def _kept(annotations: Mapping[str, str], name: str) -> dict[str, str]:
    return {name: annotations[name]} if name in annotations else {}


def _key(namespace: str, name: str) -> str:
    """Return a key of the part as short as a label's value; the controllers' own hash is as unique."""
    return sha256(f"{namespace}/{name}".encode()).hexdigest()[:40]
