"""The PriorityClass of new pods: the one that their manifest names, or `simulate --priority-class`."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from scheduler.daemon.kube.requests import Request, escaped
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.wire import Int32
from scheduler.errors import SettingsError
from scheduler.tools.explain.input_files import ManifestFile
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster

_FLAG: Final = "--priority-class"
_NUMBER: Final = re.compile(r"-?\d{1,10}")
#: The highest value that users may give to a class.
_HIGHEST: Final = 1_000_000_000
#: The classes that every cluster has.
_BUILT_IN: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """The fields of a PriorityClass that the API server copies into a pod's spec."""

    priority: int
    may_preempt: bool = True

    def applied_to(self, pod: Pod) -> Pod:
        """Return the pod as one of this class."""
        return replace(pod, priority=self.priority, may_preempt=self.may_preempt)


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""


class _Stored(msgspec.Struct, frozen=True, rename="camel"):
    metadata: _Metadata = _Metadata()
    value: Int32 = 0
    preemption_policy: str | None = None

    def as_class(self) -> PriorityClass:
        """Return what of it is written into pods."""
        return PriorityClass(self.value, self.preemption_policy != "Never")


def read_priority_class(args: argparse.Namespace) -> PriorityClass | None:
    """Return the class that the arguments name, by name or by value; None if they name none. Raises SettingsError."""
    name: str | None = args.priority_class
    if name is None:
        return None
    if _NUMBER.fullmatch(name):
        if not -(2**31) <= int(name) <= _HIGHEST:
            raise SettingsError(_FLAG, "", name, f"a value from {-(2**31)} to {_HIGHEST}")
        return PriorityClass(int(name))
    if name not in _BUILT_IN and args.on:
        raise SettingsError(_FLAG, "", name, "its value: a snapshot has no PriorityClasses")
    found = _find(args, name)
    if found is None:
        raise SettingsError(_FLAG, "", name, "the name or the value of a PriorityClass")
    return found


def add_priorities(args: argparse.Namespace, file: ManifestFile, cluster: LoadedCluster) -> None:
    """
    Write what each manifest's PriorityClass says into its pods' spec, as the API server does; raise SettingsError.

    A class may be in the file too. For a snapshot, which has none, the priority 0 is assumed and told. The cluster's
    default class is not asked for.

    Source: plugin/pkg/admission/priority/admission.go (kubernetes 1.36).
    """
    classes = _classes_in(file)
    for index, manifest in enumerate(file.manifests):
        name = manifest.spec.get("priorityClassName")
        if not isinstance(name, str) or not name or "priority" in manifest.spec:
            continue
        if name not in classes and name not in _BUILT_IN and args.on:
            cluster.assumptions[f"a snapshot has no PriorityClasses: priority 0 is assumed, not {name}'s"] = (
                None
            )
            continue
        found = classes.get(name) or _find(args, name)
        if found is None:
            where = f"{manifest.kind} {manifest.namespace}/{manifest.name}"
            raise SettingsError(where, "spec.priorityClassName", name, "the name of a PriorityClass")
        classes[name] = found
        policy = "PreemptLowerPriority" if found.may_preempt else "Never"
        spec = {"preemptionPolicy": policy, **manifest.spec, "priority": found.priority}
        file.manifests[index] = replace(manifest, spec=spec)


def _classes_in(file: ManifestFile) -> dict[str, PriorityClass]:
    """Return the classes among the documents, by name. Raises SettingsError for a malformed one."""
    classes = {}
    for where, document in file.other_documents:
        if document["kind"] == "PriorityClass":
            try:
                found = msgspec.convert(document, _Stored)
            except msgspec.ValidationError as error:
                raise SettingsError(where, "", f"a malformed {error}", "a valid PriorityClass") from error
            classes[found.metadata.name] = found.as_class()
    return classes


def _find(args: argparse.Namespace, name: str) -> PriorityClass | None:
    """Return the cluster's class of this name, None if there is none. Raises SettingsError."""
    if name in _BUILT_IN:
        return PriorityClass(_BUILT_IN[name])
    from scheduler.cli.query import listing

    data = listing.read_object(_get(name), args.kubeconfig, args.context)
    return None if data is None else msgspec.json.decode(data, type=_Stored).as_class()


def _get(name: str) -> Request:
    return Request("GET", f"/apis/scheduling.k8s.io/v1/priorityclasses/{escaped(name)}", "get")
