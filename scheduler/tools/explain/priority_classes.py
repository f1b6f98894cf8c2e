"""
The PriorityClass of new pods: the one that their manifest names, or one that a question names.

Source: plugin/pkg/admission/priority/admission.go (kubernetes 1.36).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import msgspec

from scheduler.engine.model import nesting
from scheduler.engine.model.wire import Int32, Named
from scheduler.errors import SettingsError
from scheduler.tools.explain.formats.manifest_documents import PRIORITY_CLASS, ManifestFile, named
from scheduler.tools.explain.formats.manifests import Manifest
from scheduler.tools.explain.simulation.loaded_cluster import LoadedCluster

_NUMBER: Final = re.compile(r"-?\d{1,10}")
#: The highest value that users may give to a class.
_HIGHEST: Final = 1_000_000_000
#: The classes that every cluster has.
_BUILT_IN: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class PriorityClass(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a PriorityClass that the API server copies into a pod's spec."""

    value: Int32 = 0
    preemption_policy: str | None = None
    metadata: Named = Named()

    def applied_to(self, manifest: Manifest, policy: object = None) -> Manifest:
        """Return the manifest with pods of this class; `policy`: the preemptionPolicy that they state themselves."""
        policy = policy or self.preemption_policy or "PreemptLowerPriority"
        spec = {**manifest.spec, "priority": self.value, "preemptionPolicy": policy}
        return replace(manifest, spec=spec)


_CLASS: Final = msgspec.json.Decoder(PriorityClass)
#: Returns the JSON of the cluster's class of this name; None if there is none.
ReadClass = Callable[[str], bytes | None]


def priority_class_named(name: str, source: str, read: ReadClass | None) -> PriorityClass:
    """
    Return the class of this name or value. Raises SettingsError about `source`.

    `read`: None where the cluster's classes are not known.
    """
    if not name:
        raise SettingsError(source, "", "''", "the name or the value of a PriorityClass")
    if _NUMBER.fullmatch(name):
        if not -(2**31) <= int(name) <= _HIGHEST:
            raise SettingsError(source, "", name, f"a value from {-(2**31)} to {_HIGHEST}")
        return PriorityClass(int(name))
    if read is None and name not in _BUILT_IN:
        raise SettingsError(source, "", name, "its value: a snapshot has no PriorityClasses")
    if (found := _find(name, read)) is None:
        raise SettingsError(source, "", name, "the name or the value of a PriorityClass")
    return found


def add_priorities(
    file: ManifestFile,
    cluster: LoadedCluster,
    read: ReadClass | None,
    named: PriorityClass | None = None,
    *,
    unknown: str = "a snapshot has no PriorityClasses",
) -> None:
    """
    Write what each manifest's PriorityClass says into its pods' spec, as the API server does; raise SettingsError.

    The class `named` stands for that of each manifest. A class may be in the file too. Where the cluster's are not
    known, the priority 0 is assumed and told, with the reason `unknown`. The cluster's default class is not asked for.
    """
    if named is not None:
        file.manifests[:] = [named.applied_to(manifest) for manifest in file.manifests]
        return
    classes = _classes_in(file)
    for index, manifest in enumerate(file.manifests):
        name = manifest.spec.get("priorityClassName")
        if not isinstance(name, str) or not name or "priority" in manifest.spec:
            continue
        if read is None and name not in classes and name not in _BUILT_IN:
            cluster.assumptions[f"{unknown}: priority 0 is assumed, not {name}'s"] = None
            continue
        found = classes.get(name) or _find(name, read)
        if found is None:
            where = f"{manifest.kind} {manifest.namespace}/{manifest.name}"
            raise SettingsError(where, "spec.priorityClassName", name, "the name of a PriorityClass")
        classes[name] = found
        file.manifests[index] = found.applied_to(manifest, manifest.spec.get("preemptionPolicy"))


def _classes_in(file: ManifestFile) -> dict[str, PriorityClass]:
    """Return the classes among the documents, by name. Raises SettingsError for a malformed one."""
    classes = {}
    for where, document in file.other_documents:
        if named(document) == PRIORITY_CLASS:
            try:
                found = msgspec.convert(document, PriorityClass)
            except msgspec.ValidationError as error:
                raise SettingsError(
                    where, "", f"a malformed PriorityClass: {error}", "a valid one"
                ) from error
            classes[found.metadata.name] = found
    return classes


def _find(name: str, read: ReadClass | None) -> PriorityClass | None:
    if name in _BUILT_IN:
        return PriorityClass(_BUILT_IN[name])
    data = None if read is None else read(name)
    try:
        return None if data is None else nesting.read(_CLASS.decode, data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SettingsError(
            f"PriorityClass {name}", "", f"a malformed answer: {error}", "its JSON"
        ) from error
