"""
Preconditions: the uid and version that a request expects of the stored object.

Source: apiserver pkg/registry/rest (BeforeDelete) and pkg/storage (Preconditions.Check), kubernetes 1.36.
"""

from dataclasses import replace

from scheduler.sandbox.devcluster import status
from scheduler.sandbox.devcluster.kinds import JsonObject, Kind


def check_uid(kind: Kind, stored: JsonObject, stated: str | None) -> None:
    """Raise StatusError 409 if the stated uid is not the stored one."""
    if stated and stated != stored["uid"]:
        why = f"Precondition failed: UID in precondition: {stated}, UID in object meta: {stored['uid']}"
        raise status.conflict(kind, stored["name"], status.storage_error(kind, stored, why))


def check_deletion(kind: Kind, old: JsonObject, uid: str | None, resource_version: str | None) -> None:
    """Raise StatusError 409 if the stated uid or resourceVersion is not the stored one."""
    metadata = old["metadata"]
    if uid and uid != metadata["uid"]:
        why = (
            "the UID in the precondition "
            f"({uid}) does not match the UID in record ({metadata['uid']}). The object might have been deleted "
            "and then recreated"
        )
        raise _unmet(kind, metadata["name"], why)
    if resource_version and resource_version != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({resource_version}) does not match the ResourceVersion "
            f"in record ({metadata['resourceVersion']}). The object might have been modified"
        )
        raise _unmet(kind, metadata["name"], why)


def _unmet(kind: Kind, name: str, why: str) -> status.StatusError:
    """Return the refusal of a deletion. Upstream names the kind where other refusals name the resource."""
    return status.conflict(replace(kind, plural=kind.kind), name, why)
