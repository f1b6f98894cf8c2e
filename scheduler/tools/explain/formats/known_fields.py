"""
Names the fields of a manifest that its kind does not have, as `kubectl --validate=strict` does, and the values that the
API server refuses in fields which decide about places.

The fields of built-in kinds are those of kubernetes-asyncio's models, whose version is that of the API. They are read
from its files, since its import takes a second and 47 MB. What users do not write, status, is not checked.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from scheduler.engine.syntax.match_label_keys import Json
from scheduler.engine.syntax.quantity import QuantityError, non_negative_quantity
from scheduler.engine.syntax.words import did_you_mean
from scheduler.tools.explain.formats.json_values import mapping_or_empty

_TABLE: Final = re.compile(r"^    (openapi_types|attribute_map) = (\{.*?\})$", re.MULTILINE | re.DOTALL)
_IMPORT: Final = re.compile(r"^from \S+\.models\.(\w+) import (\w+)$", re.MULTILINE)
_OBJECT: Final = dict.fromkeys(("apiVersion", "kind"), "str") | {
    "metadata": "V1ObjectMeta",
    "status": "object",
}

#: Kinds that the models lack, by apiVersion and kind: the fields of their objects.
_CUSTOM_KINDS: Final[Mapping[tuple[str, str], str]] = {
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): "JobSetSpec",
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): "LeaderWorkerSetSpec",
    ("scheduling.x-k8s.io/v1alpha1", "PodGroup"): "CoschedulingSpec",
    ("scheduling.k8s.io/v1beta1", "PodGroup"): "PodGroupSpec",
    ("resource.k8s.io/v1", "DeviceTaintRule"): "V1beta2DeviceTaintRuleSpec",
    ("kueue.x-k8s.io/v1beta1", "Topology"): "TopologySpec",
    ("kueue.x-k8s.io/v1beta2", "Topology"): "TopologySpec",
    ("kueue.x-k8s.io/v1beta1", "ResourceFlavor"): "ResourceFlavorSpec",
    ("kueue.x-k8s.io/v1beta2", "ResourceFlavor"): "ResourceFlavorSpec",
}


def _typed(text: str) -> dict[str, str]:
    """Return fields and their types; a field without a type is not looked into."""
    return {name: of_type or "object" for name, _, of_type in (each.partition(":") for each in text.split())}


#: Sources: jobset v1alpha2, leaderworkerset v1, kueue v1beta2, scheduler-plugins v1alpha1; Kubernetes 1.37, v1beta1.
_CUSTOM_TYPES: Final[Mapping[str, Mapping[str, str]]] = {
    "JobSetSpec": _typed(
        "replicatedJobs:list[ReplicatedJob] network successPolicy failurePolicy startupPolicy suspend coordinator"
        " managedBy ttlSecondsAfterFinished volumeClaimPolicies"
    ),
    "ReplicatedJob": _typed("name groupName template:V1JobTemplateSpec replicas dependsOn"),
    "LeaderWorkerSetSpec": _typed(
        "replicas leaderWorkerTemplate:LeaderWorkerTemplate rolloutStrategy startupPolicy networkConfig"
    ),
    "LeaderWorkerTemplate": _typed(
        "leaderTemplate:V1PodTemplateSpec workerTemplate:V1PodTemplateSpec size restartPolicy subGroupPolicy"
        " volumeClaimTemplates:list[V1PersistentVolumeClaim] persistentVolumeClaimRetentionPolicy"
    ),
    "CoschedulingSpec": _typed("minMember minResources scheduleTimeoutSeconds"),
    "PodGroupSpec": _typed(
        "workloadRef parentCompositePodGroupName schedulingPolicy:V1alpha2PodGroupSchedulingPolicy"
        " schedulingConstraints:V1alpha2PodGroupSchedulingConstraints"
        " resourceClaims:list[V1alpha2PodGroupResourceClaim] disruptionMode priorityClassName priority preemptionPolicy"
    ),
    "TopologySpec": _typed("levels:list[TopologyLevel]"),
    "TopologyLevel": _typed("nodeLabel"),
    "ResourceFlavorSpec": _typed(
        "nodeLabels nodeTaints:list[V1Taint] tolerations:list[V1Toleration] topologyName"
    ),
}
#: Characters of a name in messages.
_SHOWN_CHARACTERS: Final = 100
#: Fields that Kubernetes 1.37 adds.
NEWER_FIELDS: Final[Mapping[str, Mapping[str, str]]] = {"V1JobSpec": _typed("scheduling")}
#: The resources of containers whose names have no domain. Source: validation.go, ValidateContainerResourceName.
_RESOURCES: Final = ("cpu", "memory", "ephemeral-storage")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_SELECTS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_POLICIES: Final = ("Honor", "Ignore")
_RESTARTS: Final = ("Always", "OnFailure", "Never")
#: The values of fields by type and field. Source: pkg/apis/core/validation/validation.go (kubernetes 1.36).
_VALUES: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("V1Taint", "effect"): _EFFECTS,
    ("V1Toleration", "effect"): _EFFECTS,
    ("V1Toleration", "operator"): ("Exists", "Equal", "Lt", "Gt"),
    ("V1NodeSelectorRequirement", "operator"): (*_SELECTS, "Gt", "Lt"),
    ("V1LabelSelectorRequirement", "operator"): _SELECTS,
    ("V1TopologySpreadConstraint", "whenUnsatisfiable"): ("DoNotSchedule", "ScheduleAnyway"),
    ("V1TopologySpreadConstraint", "nodeAffinityPolicy"): _POLICIES,
    ("V1TopologySpreadConstraint", "nodeTaintsPolicy"): _POLICIES,
    ("V1PodSpec", "preemptionPolicy"): ("PreemptLowerPriority", "Never"),
    ("V1PodSpec", "restartPolicy"): _RESTARTS,
    ("V1Container", "restartPolicy"): _RESTARTS,
}
#: Fields of the above in which '' counts as absent.
_MAY_BE_EMPTY: Final = frozenset(
    {("V1Toleration", "effect"), ("V1Toleration", "operator"), ("V1PodSpec", "restartPolicy")}
)


def unknown_fields(document: Json) -> Iterator[tuple[str, str]]:
    """Yield the path of each field that the kind does not have, or whose value it refuses, and a sentence on it."""
    fields = fields_of_kind(str(document.get("apiVersion")), str(document.get("kind")))
    if fields is not None:
        yield from _in_fields(document, fields, "")


def fields_of_kind(api_version: str, kind: str) -> Mapping[str, str] | None:
    """Return the fields of a kind's objects with their types, None for a kind that is not known."""
    if (spec := _CUSTOM_KINDS.get((api_version, kind))) is not None:
        return {**_OBJECT, "spec": spec}
    group, _, version = api_version.rpartition("/")
    name = f"{version.capitalize()}{kind}"
    # Models of a kind that several groups have begin with the group's name.
    of_group = f"{(group or 'core').partition('.')[0].capitalize()}{name}"
    model = next((each for each in (name, of_group) if each in _modules()), None)
    return None if model is None else {**fields_of(model), "status": "object"}


def _in(value: object, of_type: str, path: str) -> Iterator[tuple[str, str]]:
    """Yield what is unknown in a value of this type."""
    if of_type.startswith("list["):
        for index, item in enumerate(value if isinstance(value, list) else ()):
            yield from _in(item, of_type[5:-1], f"{path}[{index}]")
    elif not isinstance(value, Mapping):
        return
    elif of_type.startswith("dict("):
        for name, item in value.items():
            yield from _in(item, of_type[5:-1].partition(", ")[2], f"{path}.{name[:_SHOWN_CHARACTERS]}")
    elif fields := fields_of(of_type):
        if of_type == "V1ResourceRequirements":
            yield from _refused_resources(value, path)
        yield from _refused_values(value, of_type, path)
        yield from _in_fields(value, fields, path, is_open=of_type in _CUSTOM_TYPES)


def _in_fields(
    value: Json, fields: Mapping[str, str], path: str, *, is_open: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield what is unknown in an object; of an open type, which may have newer fields, only what looks misspelt."""
    for name, item in value.items():
        shown = name[:_SHOWN_CHARACTERS]
        at = f"{path}.{shown}" if path else shown
        if name in fields:
            yield from _in(item, fields[name], at)
        elif (hint := did_you_mean(shown, fields)) or not is_open:
            yield at, f"unknown field{hint}"


def _refused_values(value: Json, of_type: str, path: str) -> Iterator[tuple[str, str]]:
    for name, item in value.items():
        allowed = _VALUES.get((of_type, name), ())
        if not allowed or not isinstance(item, str) or item in allowed:
            continue
        if item or (of_type, name) not in _MAY_BE_EMPTY:
            found = item[:_SHOWN_CHARACTERS]
            expected = f"one of {', '.join(allowed)}{did_you_mean(found, allowed)}"
            yield f"{path}.{name}", f"found {found!r}, expected {expected}"


def _refused_resources(requirements: Json, path: str) -> Iterator[tuple[str, str]]:
    """Yield unknown resources and requests above their limits. What is no quantity is refused when the pod is read."""
    requests: Mapping[str, Any] = mapping_or_empty(requirements.get("requests"))
    limits: Mapping[str, Any] = mapping_or_empty(requirements.get("limits"))
    for field, amounts in (("requests", requests), ("limits", limits)):
        for name in amounts:
            if "/" not in name and name not in _RESOURCES and not name.startswith("hugepages-"):
                shown = name[:_SHOWN_CHARACTERS]
                hint = did_you_mean(shown, _RESOURCES)
                yield f"{path}.{field}.{shown}", f"must be a standard resource for containers{hint}"
    for name in (each for each in requests if each in limits):
        with suppress(QuantityError, TypeError):
            if non_negative_quantity(requests[name]).nano > non_negative_quantity(limits[name]).nano:
                text = f"found {str(requests[name])!r}, expected at most the limit {str(limits[name])!r}"
                yield f"{path}.requests.{name[:_SHOWN_CHARACTERS]}", text


@lru_cache(maxsize=1_024)
def fields_of(of_type: str) -> Mapping[str, str]:
    """Return the fields of a type with their types; none for what is no object, or one with any fields."""
    if of_type in _CUSTOM_TYPES:
        return _CUSTOM_TYPES[of_type]
    module = _modules().get(of_type)
    if module is None:
        return {}
    tables = dict(_TABLE.findall((_folder() / f"{module}.py").read_text()))
    types, names = (ast.literal_eval(tables[table]) for table in ("openapi_types", "attribute_map"))
    return {**{names[attribute]: types[attribute] for attribute in names}, **NEWER_FIELDS.get(of_type, {})}


@lru_cache(maxsize=1)
def _modules() -> Mapping[str, str]:
    """Return the file of each model."""
    return {model: module for module, model in _IMPORT.findall((_folder() / "__init__.py").read_text())}


def _folder() -> Path:
    found = find_spec("kubernetes_asyncio")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("kubernetes_asyncio, which the package requires, is not installed")
    return Path(found.origin).parent / "client" / "models"
