"""
The verbs of the Kubernetes API on objects in memory, with its rules: names, conflicts, generations, deletion.

One event loop writes here, synchronously and without locks. Objects handed in are copied; **objects handed out are
shared with every other reader and must never be changed** (`history.copied` makes a private copy).

Source: apiserver pkg/registry/generic/registry/store.go (kubernetes 1.36).
"""

import secrets
import time
from dataclasses import replace
from typing import Final
from uuid import uuid4

from scheduler.sandbox.devcluster import status
from scheduler.sandbox.devcluster.admission.definitions import kinds_of
from scheduler.sandbox.devcluster.admission.metadata import metadata_errors, metadata_update_errors
from scheduler.sandbox.devcluster.admission.shapes import check_shape
from scheduler.sandbox.devcluster.admission.strategies import strategy_of
from scheduler.sandbox.devcluster.admission.strategy import View, remove
from scheduler.sandbox.devcluster.kinds import (
    CUSTOM_RESOURCE_DEFINITION,
    NAMESPACE,
    JsonObject,
    Kind,
    ServedKinds,
)
from scheduler.sandbox.devcluster.parts import rfc3339
from scheduler.sandbox.devcluster.storage.deletion import Deleter, Deletion
from scheduler.sandbox.devcluster.storage.history import (
    History,
    ObjectChange,
    Revision,
    as_core,
    copied,
    without_nulls,
)
from scheduler.sandbox.devcluster.storage.patches import JsonPatch, PatchType, patched
from scheduler.sandbox.devcluster.versions import DEFAULT_MINOR, dropped_fields, hidden_kinds

#: Past changes of each kind that are kept; the oldest are forgotten first.
HISTORY_CAPACITY: Final = 10_000

_NAME_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED_PREFIX_LENGTH: Final = 58
#: Why an object of another namespace than the URL's is refused.
OTHER_NAMESPACE: Final = (
    "the namespace of the provided object does not match the namespace sent on the request"
)
#: Top-level fields that are not part of what the user wants of an object.
_NOT_SPEC: Final = frozenset({"apiVersion", "kind", "metadata", "status"})
#: metadata that only the server writes; an update keeps the stored values.
_SERVER_METADATA: Final = (
    "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "namespace",
    "generateName", "selfLink", "resourceVersion",
)  # fmt: skip
#: metadata that the status subresource may not write.
_NOT_OF_STATUS: Final = ("labels", "annotations", "finalizers", "ownerReferences")


class ObjectStore:
    """
    All objects of the cluster.

    Every method that refuses a request raises StatusError as the API server would answer.
    """

    def __init__(self, *, capacity: int = HISTORY_CAPACITY, minor: int = DEFAULT_MINOR) -> None:
        #: The minor version of Kubernetes.
        self.minor: Final = minor
        self.history: Final = History(capacity)
        self.kinds: Final = ServedKinds(hidden_kinds(minor))
        self.history.listeners.append(self._follow_definitions)
        #: Continue token -> the version of a list, and the rest of it.
        self.rests: Final[dict[str, tuple[int, list[Revision]]]] = {}
        self._deleter = Deleter(self.history, self.kinds)

    @property
    def resource_version(self) -> int:
        """Return the resource version of the newest write."""
        return self.history.resource_version

    def now_s(self) -> float:
        """Return the time in seconds since 1970."""
        return time.time()

    def now(self) -> str:
        """Return the time as metadata prints it."""
        return rfc3339(self.now_s())

    # -- reading ---------------------------------------------------------------------------------------------

    def get(self, kind: Kind, namespace: str, name: str) -> JsonObject:
        """Return the newest state of an object. Raises: StatusError 404."""
        return self.revision(kind, namespace, name).as_kind(kind)

    def find(self, kind: Kind, namespace: str, name: str) -> JsonObject | None:
        """Return the newest state of an object, or None."""
        revision = self.history.find(kind, namespace, name)
        return revision.as_kind(kind) if revision else None

    def revision(self, kind: Kind, namespace: str, name: str) -> Revision:
        """Return the newest revision of an object. Raises: StatusError 404."""
        revision = self.history.find(kind, namespace, name)
        if revision is None:
            raise status.not_found(kind, name)
        return revision

    def owned(self, kind: Kind, uid: str) -> list[JsonObject]:
        """Return the objects of a kind that have an owner with this uid. Cost: O(all that it owns)."""
        return [obj for of_kind, obj in self._deleter.dependents(uid) if of_kind is kind]

    def list(self, kind: Kind, namespace: str | None = None) -> tuple[list[JsonObject], int]:
        """Return the objects of one namespace (None: of all), and the list's version. Cost: O(objects in scope)."""
        return [one.as_kind(kind) for one in self.history.snapshot(kind, namespace)], self.resource_version

    # -- writing ---------------------------------------------------------------------------------------------

    def create(self, kind: Kind, namespace: str, obj: JsonObject, *, dry_run: bool = False) -> JsonObject:
        """Store a new object and return it as stored. Raises: StatusError 400, 403, 404 (namespace), 409, 422."""
        return self.commit(kind, self.prepared(kind, namespace, obj), dry_run=dry_run)

    def prepared(self, kind: Kind, namespace: str, obj: JsonObject) -> JsonObject:
        """Return the object as `commit` will store it. Raises: StatusError as `create`, for rules of the object."""
        strategy = strategy_of(kind)
        new = stored_form(kind, copied(obj))
        check_shape(kind, new)
        remove(new, dropped_fields(kind.kind, self.minor))
        metadata = self._new_metadata(kind, namespace, new)
        if strategy.has_generation:
            metadata["generation"] = 1
        if kind.namespaced:
            self.check_namespace(kind, namespace, metadata.get("name", ""))
        strategy.fill_in(new)
        if strategy.initial_status is not None:
            new["status"] = copied(strategy.initial_status)
        strategy.prepare_create(new, self.view())
        errors = [
            *metadata_errors(metadata, strategy.name_faults),
            *strategy.errors(new),
            *strategy.validate_create(new),
        ]
        if errors:
            raise status.invalid(kind, metadata.get("name", ""), errors)
        return new

    def commit(self, kind: Kind, new: JsonObject, *, dry_run: bool = False) -> JsonObject:
        """Store a `prepared` object. Raises: StatusError 403, 404 (namespace), 409."""
        metadata = new["metadata"]
        namespace = metadata.get("namespace", "")
        if kind.namespaced:
            self.check_namespace(kind, namespace, metadata["name"])
        if self.history.find(kind, namespace, metadata["name"]) is not None:
            raise status.already_exists(kind, metadata["name"])
        return (Revision(new, 0) if dry_run else self.history.put(kind, new)).as_kind(kind)

    def update(
        self, kind: Kind, obj: JsonObject, *, subresource: str | None = None, dry_run: bool = False
    ) -> JsonObject:
        """
        Replace an object and return it as stored; an unchanged object keeps its resource version.

        `subresource="status"` writes the status and nothing else of substance.
        Raises: StatusError 400, 404, 409, 422.
        """
        new = stored_form(kind, copied(obj))
        metadata = new.get("metadata") or {}
        old = self.revision(
            kind, metadata.get("namespace", "") if kind.namespaced else "", metadata.get("name", "")
        )
        check_uid(kind, old.obj["metadata"], metadata.get("uid"))
        return self._replace(kind, old, new, subresource=subresource, dry_run=dry_run)

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        patch: JsonObject | JsonPatch,
        *,
        patch_type: PatchType = PatchType.MERGE,
        subresource: str | None = None,
        dry_run: bool = False,
    ) -> JsonObject:
        """
        Patch an object and return it as stored.

        Raises: StatusError 400, 404, 409 (a resourceVersion in the patch that is not the stored one), 422.
        """
        old = self.revision(kind, namespace, name)
        new = stored_form(kind, patched(copied(old.as_kind(kind)), patch, patch_type, kind))
        check_shape(kind, new)
        metadata = new.get("metadata") or {}
        if (metadata.get("namespace") or "") != namespace:
            raise status.bad_request(OTHER_NAMESPACE)
        check_name(metadata, name)
        return self._replace(kind, old, new, subresource=subresource, dry_run=dry_run)

    def rewrite(self, kind: Kind, new: JsonObject, *, dry_run: bool = False) -> JsonObject:
        """
        Store `new`, unvalidated, in place of the current state, if there is one: for subresources that validated it.

        `new` may share parts with the stored object but must be another one.
        """
        return new if dry_run else self.history.put(kind, new).as_kind(kind)

    def delete(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        *,
        uid: str | None = None,
        grace_period_s: int | None = None,
        propagation: str | None = None,
        dry_run: bool = False,
    ) -> Deletion:
        """
        Remove an object, or mark it as terminating if it has grace or finalizers.

        `uid` is a precondition. `grace_period_s` None leaves the grace to the object, 0
        ends it at once. `propagation` is the policy for dependents: Orphan, or any other to delete them.
        Raises: StatusError 404, 409.
        """
        old = self.revision(kind, namespace, name).obj
        if uid and uid != old["metadata"]["uid"]:
            why = (
                f"the UID in the precondition ({uid}) does not match the UID in record ({old['metadata']['uid']}). "
                "The object might have been deleted and then recreated"
            )
            # Upstream names the kind where other refusals name the resource.
            raise status.conflict(replace(kind, plural=kind.kind), name, why)
        if dry_run:
            return Deletion(old, gone=True)
        return self._deleter.delete(kind, old, grace_period_s, propagation)

    # -- steps of a write ------------------------------------------------------------------------------------

    def view(self) -> View:
        """Return the view of the cluster that strategies read."""
        return View(self.now(), self.find, lambda kind: self.list(kind)[0])

    def check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        """Raise StatusError 404 if the namespace is missing, 403 if it is terminating."""
        found = self.get(NAMESPACE, "", namespace)
        if found["metadata"].get("deletionTimestamp"):
            message = f"namespace {namespace} is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise status.forbidden(kind, name, why, causes=[cause])

    def _follow_definitions(self, kind: Kind, change: ObjectChange) -> None:
        """Serve the kinds of CustomResourceDefinitions, as long as these are there."""
        if kind is CUSTOM_RESOURCE_DEFINITION:
            definition = change.revision.obj
            defined = () if change.type == "DELETED" else kinds_of(definition)
            self.kinds.define(definition["metadata"]["name"], defined)

    def _new_metadata(self, kind: Kind, namespace: str, new: JsonObject) -> JsonObject:
        """Return the metadata of a new object, with the fields that the server writes."""
        metadata: JsonObject = new.setdefault("metadata", {})
        if metadata.get("resourceVersion"):
            raise status.StatusError(500, "", "resourceVersion should not be set on objects to be created")
        if (metadata.get("namespace") or namespace) != namespace:
            raise status.bad_request(OTHER_NAMESPACE)
        for key in _SERVER_METADATA:
            if key != "generateName":
                metadata.pop(key, None)
        if not metadata.get("name") and metadata.get("generateName"):
            prefix = str(metadata["generateName"])[:_GENERATED_PREFIX_LENGTH]
            metadata["name"] = prefix + "".join(secrets.choice(_NAME_ALPHABET) for _ in range(5))
        if kind.namespaced:
            metadata["namespace"] = namespace
        metadata |= {"uid": str(uuid4()), "creationTimestamp": self.now()}
        return metadata

    def _replace(
        self, kind: Kind, revision: Revision, new: JsonObject, *, subresource: str | None, dry_run: bool
    ) -> JsonObject:
        """Store the new state, as far as the (sub)resource may write it."""
        old, strategy = revision.obj, strategy_of(kind)
        metadata, stored = new.setdefault("metadata", {}), old["metadata"]
        version = metadata.get("resourceVersion") or ""
        if not version and not strategy.unconditional_update:
            raise status.resource_version_required(kind, stored["name"])
        if version and version != stored["resourceVersion"]:
            raise status.conflict(kind, stored["name"])
        check_shape(kind, new)
        remove(new, dropped_fields(kind.kind, self.minor))
        # Upstream checks metadata in general and once more for the kind, so these causes come twice.
        errors = 2 * list(metadata_update_errors(metadata, stored))
        _restore(metadata, stored, *_SERVER_METADATA)
        if subresource == "status":
            _restore(new, old, *((new.keys() | old.keys()) - {"metadata", "status"}))
            _restore(metadata, stored, *_NOT_OF_STATUS)
        elif "status" in kind.subresources:
            _restore(new, old, "status")
        strategy.fill_in(new)
        strategy.prepare_update(new, old, self.view())
        if strategy.has_generation and _spec_of(new) != _spec_of(old):
            metadata["generation"] = stored.get("generation", 0) + 1
        errors += metadata_errors(metadata, strategy.name_faults)
        if subresource == "status":
            errors += strategy.validate_status(new, old)
        else:
            errors += [*strategy.errors(new), *strategy.update_errors(new, old)]
        if errors:
            raise status.invalid(kind, stored["name"], errors)
        if self._deleter.is_finished(new) and not dry_run and new != old:
            # Watches see the object go as it was stored, finalizers included.
            self._deleter.remove(kind, old)
        elif not dry_run and new != old:
            return self.history.put(kind, new).as_kind(kind)
        return Revision(new, revision.resource_version).as_kind(kind)


def stored_form(kind: Kind, obj: JsonObject) -> JsonObject:
    """Return a client's object in the version that is stored, with apiVersion and kind, without nulls."""
    obj = without_nulls(obj)
    if kind.group == "events.k8s.io":
        return as_core(obj)
    obj["apiVersion"], obj["kind"] = kind.api_version, kind.kind
    return obj


def _restore(into: JsonObject, source: JsonObject, *keys: str) -> None:
    """Give fields the values that they have in the source, or none."""
    for key in keys:
        if key in source:
            into[key] = source[key]
        else:
            into.pop(key, None)


def _spec_of(obj: JsonObject) -> JsonObject:
    return {key: value for key, value in obj.items() if key not in _NOT_SPEC}


def check_name(metadata: JsonObject, name: str) -> None:
    """Raise StatusError 400 if the URL names another object."""
    stated = metadata.get("name") or ""
    if stated != name:
        raise status.bad_request(
            f"the name of the object ({stated}) does not match the name on the URL ({name})"
        )


def check_uid(kind: Kind, stored: JsonObject, stated: str | None) -> None:
    """Raise StatusError 409 if the stated uid is not the stored one."""
    if stated and stated != stored["uid"]:
        why = f"Precondition failed: UID in precondition: {stated}, UID in object meta: {stored['uid']}"
        raise status.conflict(kind, stored["name"], why)
