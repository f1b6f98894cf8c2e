"""
Makes the pods that a manifest would create, as the controllers would.

Pods belong to a new revision, unless `of_revision` names theirs.

Source: pkg/controller/{deployment,statefulset,daemon,job} (1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from scheduler.daemon.settings import problems
from scheduler.engine.model.affinity import label_selector
from scheduler.engine.model.pod_groups import GroupKey, group_reference
from scheduler.engine.model.pods import DEFAULT_SCHEDULER_NAME
from scheduler.engine.model.revisions import REVISION_KEY
from scheduler.engine.model.semantics import Semantics
from scheduler.engine.model.wire import LabelSelector
from scheduler.engine.syntax.match_label_keys import Json
from scheduler.engine.syntax.names import dns_label_faults
from scheduler.engine.syntax.selectors import SelectorError
from scheduler.tools.explain.formats.json_values import (
    ManifestError,
    as_list,
    as_mapping,
    as_number,
    as_texts,
    mapping_or_empty,
    shown,
)
from scheduler.tools.explain.formats.stored_spec import stored_spec
from scheduler.tools.explain.formats.workload_sets import jobs_of, stateful_sets_of

#: The kinds that create pods, and their apiVersions.
KINDS: Final = {
    "Pod": "v1",
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "ReplicationController": "v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
}
#: Those whose selector the user writes; the controller makes that of a Job.
_SELECTING: Final = ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController")
#: The label with the revision of the pods, by kind, and what stands in for that of new pods: no two workloads share it.
REVISION_KEYS: Final = {
    "Deployment": REVISION_KEY,
    "StatefulSet": "controller-revision-hash",
    "DaemonSet": "controller-revision-hash",
}
_NEW_REVISION: Final = "new-revision-of"
#: Labels with the UID of the pods' Job.
_JOB_KEYS: Final = ("batch.kubernetes.io/controller-uid", "controller-uid")
#: Labels whose values are made up here.
MADE_UP_LABELS: Final = frozenset({*REVISION_KEYS.values(), *_JOB_KEYS})
#: Taints that the DaemonSet controller lets its pods tolerate, and their effects.
_DAEMONS_TOLERATE: Final = {
    "node.kubernetes.io/not-ready": "NoExecute",
    "node.kubernetes.io/unreachable": "NoExecute",
    "node.kubernetes.io/disk-pressure": "NoSchedule",
    "node.kubernetes.io/memory-pressure": "NoSchedule",
    "node.kubernetes.io/pid-pressure": "NoSchedule",
    "node.kubernetes.io/unschedulable": "NoSchedule",
}
_ON_HOST_NETWORK: Final = {"node.kubernetes.io/network-unavailable": "NoSchedule"}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_TEMPLATES: Final = "spec.volumeClaimTemplates"


@dataclass(frozen=True, slots=True)
class ClaimTemplate:
    """What claims are made from. `name`: of the volume that uses the claim."""

    name: str
    annotations: Json
    spec: Json


@dataclass(frozen=True, slots=True)
class Manifest:
    """
    One document that creates pods.

    `owner`: the pods' controller as JSON, whose selector default spreading uses; None for a bare Pod. `n_replicas` of a
    DaemonSet is 1: it has a pod for each node that takes one.
    """

    kind: str
    namespace: str
    name: str
    n_replicas: int
    labels: Json
    annotations: Json
    spec: Json
    owner: Json | None
    semantics: Semantics
    #: A claim of each is made for each pod: by a StatefulSet, and for generic ephemeral volumes.
    claim_templates: tuple[ClaimTemplate, ...] = ()
    ephemeral_claims: tuple[ClaimTemplate, ...] = ()
    #: The ordinal of the first pod of a StatefulSet, and whether the pods of a Job have a completion index.
    first_ordinal: int = 0
    is_indexed: bool = False
    #: Kind, namespace and name of the document.
    made_from: tuple[str, str, str] = ("", "", "")
    #: The field with the template, in a document of a set that makes several workloads; else empty.
    made_at: str = ""

    @property
    def is_daemon_set(self) -> bool:
        """Whether there is a pod for each node, rather than a number of replicas."""
        return self.kind == "DaemonSet"

    @property
    def scheduler_name(self) -> str:
        """The scheduler of its pods."""
        return str(self.spec.get("schedulerName") or DEFAULT_SCHEDULER_NAME)

    @property
    def group(self) -> GroupKey | None:
        """Return the group that the pods name, None if they name none."""
        scheduling_group = mapping_or_empty(self.spec.get("schedulingGroup")).get("podGroupName")
        found = group_reference(
            self.namespace, str(scheduling_group or ""), as_texts(self.labels), as_texts(self.annotations)
        )
        return None if found is None else found.key

    def of_revision(self, revision: str) -> Manifest:
        """Return the manifest of a kind with revisions, with pods of this one."""
        made = replace(self, labels={**self.labels, REVISION_KEYS[self.kind]: revision})
        if self.kind != "Deployment":
            return made
        spec = as_mapping((self.owner or {}).get("spec"), "spec")
        return replace(made, owner=_replica_set(spec.get("selector"), self.namespace, self.name, revision))

    def pod(self, number: int, node_name: str = "") -> Json:
        """Return the pod of this ordinal, from 0, as the API server stores it; of a DaemonSet the named node's."""
        name = self.pod_name(number)
        labels = {**self.labels, **self._ordinal_labels(name, number + self.first_ordinal)}
        metadata: dict[str, object] = {
            "name": name,
            "namespace": self.namespace,
            "uid": self._pod_uid(name),
            "labels": labels,
            "annotations": self.annotations,
        }
        if self.owner is not None:
            metadata["ownerReferences"] = [_reference(self.owner)]
        spec = stored_spec(self._spec_for(node_name), labels, self.semantics)
        return {
            "metadata": metadata,
            "spec": {**spec, "volumes": self._volumes(name)},
            "status": {"phase": "Pending"},
        }

    def claims(self, number: int) -> list[Json]:
        """
        Return the claims that controllers would make for the pod with this ordinal, unless they exist.

        Source: pkg/controller/statefulset/stateful_set_utils.go, pkg/controller/volume/ephemeral (kubernetes 1.36).
        """
        pod_name = self.pod_name(number)
        owner = {"ownerReferences": [{"uid": self._pod_uid(pod_name), "controller": True}]}
        claims: list[tuple[str, ClaimTemplate, Json]] = [
            *((f"{one.name}-{pod_name}", one, {}) for one in self.claim_templates),
            *((f"{pod_name}-{one.name}", one, owner) for one in self.ephemeral_claims),
        ]
        named = {"namespace": self.namespace}
        return [
            {
                "metadata": {**named, "name": name, "annotations": template.annotations, **owned},
                "spec": template.spec,
            }
            for name, template, owned in claims
        ]

    def _volumes(self, pod_name: str) -> list[object]:
        """Return the pod's volumes; those of claim templates replace others of their name."""
        # A list, in which names that a malformed volume has may be looked for, too.
        names = sorted({one.name for one in self.claim_templates})
        others = [
            one
            for one in as_list(self.spec.get("volumes"), "volumes")
            if not isinstance(one, Mapping) or one.get("name") not in names
        ]
        return [
            *({"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod_name}"}} for name in names),
            *others,
        ]

    def pod_name(self, number: int) -> str:
        """Return the name of the pod of this ordinal, from 0."""
        is_first = self.kind == "Pod" and not number
        return self.name if is_first else f"{self.name.removesuffix('-')}-{number + self.first_ordinal}"

    def _pod_uid(self, name: str) -> str:
        return f"not-created/{self.kind}/{self.namespace}/{name}"

    def _spec_for(self, node_name: str) -> Json:
        """Return the template's spec; a DaemonSet adds tolerations, and its pod's affinity names the node alone."""
        tolerations = self.spec.get("tolerations") or []
        if not self.is_daemon_set or not isinstance(tolerations, list):
            return self.spec
        taints = {**_DAEMONS_TOLERATE, **(_ON_HOST_NETWORK if self.spec.get("hostNetwork") is True else {})}
        more = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in taints.items()]
        spec = {**self.spec, "tolerations": [*tolerations, *more]}
        if node_name:
            named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}
            others = mapping_or_empty(spec.get("affinity"))
            preferred = mapping_or_empty(others.get("nodeAffinity"))
            required = {_REQUIRED: {"nodeSelectorTerms": [named]}}
            spec["affinity"] = {**others, "nodeAffinity": {**preferred, **required}}
        return spec

    def _ordinal_labels(self, name: str, number: int) -> dict[str, str]:
        """Return the labels that a StatefulSet, or an indexed Job, gives each pod."""
        if self.kind != "StatefulSet":
            return {"batch.kubernetes.io/job-completion-index": str(number)} if self.is_indexed else {}
        return {"statefulset.kubernetes.io/pod-name": name, "apps.kubernetes.io/pod-index": str(number)}


def is_controlled(document: object) -> bool:
    """Return whether the document is a pod that a controller made."""
    whole = mapping_or_empty(document)
    owners = mapping_or_empty(whole.get("metadata")).get("ownerReferences")
    return (
        whole.get("kind") == "Pod"
        and isinstance(owners, list)
        and any(mapping_or_empty(owner).get("controller") is True for owner in owners)
    )


def parse_manifests(document: object, *, namespace: str, semantics: Semantics) -> list[Manifest]:
    """Return the document, decoded, as Manifests: of a JobSet those of its Jobs, and so on. Raises ManifestError."""
    whole = as_mapping(document, "")
    if whole.get("kind") not in ("JobSet", "LeaderWorkerSet"):
        return [parse_manifest(whole, namespace=namespace, semantics=semantics)]
    kind, namespace, name = made_from = _named(whole, namespace)
    found = []
    for path, made in (jobs_of if kind == "JobSet" else stateful_sets_of)(whole, namespace, name):
        try:
            manifest = parse_manifest(made, namespace="", semantics=semantics)
        except ManifestError as error:
            field = error.field if kind == "JobSet" else error.field.removeprefix("spec.template.")
            raise ManifestError(f"{path}{field}", error.found, error.expected) from error
        found.append(replace(manifest, made_from=made_from, made_at=path))
    return found


def _named(whole: Json, namespace: str) -> tuple[str, str, str]:
    """Return kind, namespace and name. Raises ManifestError for a kind or a version that creates no pods."""
    kind = whole.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        raise ManifestError("kind", shown(kind), f"one of {', '.join(KINDS)}")
    if whole.get("apiVersion") != KINDS[kind]:
        raise ManifestError("apiVersion", shown(whole.get("apiVersion")), KINDS[kind])
    metadata = as_mapping(whole.get("metadata"), "metadata")
    name = metadata.get("name") or metadata.get("generateName")
    if not isinstance(name, str) or not name:
        raise ManifestError("metadata.name", shown(name), "a name")
    stated = metadata.get("namespace") or namespace
    if not isinstance(stated, str) or (stated and dns_label_faults(stated)):
        raise ManifestError("metadata.namespace", shown(stated), "the name of a namespace")
    return kind, stated, name


def parse_manifest(document: object, *, namespace: str, semantics: Semantics) -> Manifest:
    """Return the document, decoded, as a Manifest, of `namespace` if it names none. Raises ManifestError."""
    whole = as_mapping(document, "")
    kind, namespace, name = made_from = _named(whole, namespace)
    outer = ""
    if kind == "CronJob":
        kind, whole, outer = "Job", as_mapping(whole.get("spec"), "spec"), "spec.jobTemplate."
        whole = as_mapping(whole.get("jobTemplate"), "spec.jobTemplate")
    is_pod, is_stateful = kind == "Pod", kind == "StatefulSet"
    spec = {} if is_pod else as_mapping(whole.get("spec"), f"{outer}spec")
    template = whole if is_pod else as_mapping(spec.get("template"), f"{outer}spec.template")
    path = "" if is_pod else f"{outer}spec.template."
    own = as_mapping(template.get("metadata") or {}, f"{path}metadata")
    labels = as_mapping(own.get("labels") or {}, f"{path}metadata.labels")
    pod_spec = as_mapping(template.get("spec"), f"{path}spec")
    if kind in _SELECTING:
        _check_selector(kind, spec.get("selector"), labels)
    default = {"selector": labels} if kind == "ReplicationController" else {}
    ordinals = as_mapping(spec.get("ordinals") or {}, "spec.ordinals") if is_stateful else {}
    templates = as_list(spec.get("volumeClaimTemplates"), _TEMPLATES) if is_stateful else ()
    return Manifest(
        kind=kind,
        namespace=namespace,
        name=name,
        n_replicas=_replicas(kind, spec),
        labels={**labels, **_controller_labels(kind, name)},
        annotations=as_mapping(own.get("annotations") or {}, f"{path}metadata.annotations"),
        spec=pod_spec,
        owner=None if is_pod else _owner(kind, namespace, name, {**default, **spec}),
        semantics=semantics,
        claim_templates=tuple(
            _claim_template(one, f"{_TEMPLATES}[{index}]", "") for index, one in enumerate(templates)
        ),
        ephemeral_claims=_ephemeral_claims(pod_spec, f"{path}spec"),
        first_ordinal=as_number(ordinals, "start", 0, "spec.ordinals"),
        is_indexed=kind == "Job" and spec.get("completionMode") == "Indexed",
        made_from=made_from,
    )


def _check_selector(kind: str, selector: object, labels: Json) -> None:
    """Raise ManifestError for a selector, unless absent, that does not match the template's labels."""
    if selector is None:
        return
    stated = as_mapping(selector, "spec.selector")
    try:
        read = msgspec.convert(
            {"matchLabels": stated} if kind == "ReplicationController" else stated, LabelSelector
        )
        matches = label_selector(read).matches(as_texts(labels))
    except (msgspec.ValidationError, SelectorError) as error:
        raise ManifestError("spec.selector", str(error), "a label selector") from error
    if not matches:
        raise ManifestError(
            "spec.selector",
            problems.shown(stated),
            f"one that matches the template's labels {problems.shown(labels)}",
        )


def _ephemeral_claims(spec: Json, field: str) -> tuple[ClaimTemplate, ...]:
    """Return the claim templates of generic ephemeral volumes in a pod's spec."""
    found = []
    for number, one in enumerate(as_list(spec.get("volumes"), f"{field}.volumes")):
        volume = mapping_or_empty(one)
        if isinstance(ephemeral := volume.get("ephemeral"), Mapping):
            where = f"{field}.volumes[{number}].ephemeral.volumeClaimTemplate"
            name = str(volume.get("name"))
            found.append(_claim_template(ephemeral.get("volumeClaimTemplate"), where, name))
    return tuple(found)


def _claim_template(found: object, field: str, name: str) -> ClaimTemplate:
    template = as_mapping(found, field)
    metadata = as_mapping(template.get("metadata") or {}, f"{field}.metadata")
    name = name or str(metadata.get("name") or "")
    if not name:
        raise ManifestError(f"{field}.metadata.name", "nothing", "a name")
    annotations = as_mapping(metadata.get("annotations") or {}, f"{field}.metadata.annotations")
    return ClaimTemplate(name, annotations, as_mapping(template.get("spec"), f"{field}.spec"))


def _controller_labels(kind: str, name: str) -> dict[str, str]:
    """Return the labels that the controller gives all its pods."""
    if kind in REVISION_KEYS:
        return {REVISION_KEYS[kind]: f"{_NEW_REVISION}-{name}"}
    named = {"batch.kubernetes.io/job-name": name, "job-name": name}
    return {**named, **dict.fromkeys(_JOB_KEYS, f"not-created-{name}")} if kind == "Job" else {}


def _replicas(kind: str, spec: Json) -> int:
    """Return the number of pods that run at once; a Job makes no more than it has completions left."""
    if kind in ("Pod", "DaemonSet"):
        return 1
    if kind != "Job":
        return as_number(spec, "replicas", 1, "spec")
    parallelism = as_number(spec, "parallelism", 1, "spec")
    return min(parallelism, as_number(spec, "completions", parallelism, "spec"))


def _owner(kind: str, namespace: str, name: str, spec: Json) -> Json:
    """Return the pods' controller; for a Deployment, its new ReplicaSet."""
    selector = spec.get("selector") or {}
    if kind == "Deployment":
        return _replica_set(selector, namespace, name, f"{_NEW_REVISION}-{name}")
    return {
        "apiVersion": KINDS[kind],
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": selector},
    }


def _replica_set(selector: object, namespace: str, name: str, revision: str) -> Json:
    """Return the ReplicaSet of a Deployment's revision; `selector` may be that of another revision."""
    selected = as_mapping(selector, "spec.selector")
    pairs = as_mapping(selected.get("matchLabels") or {}, "spec.selector.matchLabels")
    return {
        "apiVersion": KINDS["ReplicaSet"],
        "kind": "ReplicaSet",
        "metadata": {"name": f"{name}-{revision}", "namespace": namespace},
        "spec": {"selector": {**selected, "matchLabels": {**pairs, REVISION_KEY: revision}}},
    }


def _reference(owner: Json) -> Json:
    name = as_mapping(owner["metadata"], "metadata")["name"]
    named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": name}
    return {**named, "uid": f"not-created/{name}", "controller": True}
