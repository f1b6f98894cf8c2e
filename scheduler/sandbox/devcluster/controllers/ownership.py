"""
Owner references: the controller of an object, and the objects that a controller may claim.

Source: pkg/controller/controller_ref_manager.go, pkg/apis/meta/v1/controller_ref.go (kubernetes 1.36).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from scheduler.sandbox.devcluster import label_selectors
from scheduler.sandbox.devcluster.controllers.actions import Action, Update
from scheduler.sandbox.devcluster.controllers.copies import replaced
from scheduler.sandbox.devcluster.kinds import JsonObject, Kind


@dataclass(slots=True)
class Claim:
    """The dependents that an owner may count, and the writes that claiming them needs."""

    owned: list[JsonObject] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)


def uid(obj: JsonObject) -> str:
    """Return the object's uid, empty before it is stored."""
    return str(obj["metadata"].get("uid", ""))


def key_of(obj: JsonObject) -> tuple[str, str]:
    """Return namespace and name of an object."""
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def controller_ref(owner: JsonObject) -> JsonObject:
    """Return the owner reference by which `owner` controls an object."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": uid(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_uid(obj: JsonObject) -> str | None:
    """Return the uid of the object's controller; None for an orphan."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return str(reference.get("uid", ""))
    return None


def owner_selects(owner: JsonObject, obj: JsonObject) -> bool:
    """Return True if the owner's selector matches the object's labels; a malformed selector matches nothing."""
    selector = (owner.get("spec") or {}).get("selector")
    try:
        return label_selectors.selects(selector, obj["metadata"].get("labels") or {})
    except (AttributeError, KeyError, TypeError):
        return False


def claim_dependents(owner: JsonObject, kind: Kind, candidates: Iterable[JsonObject]) -> Claim:
    """
    Return which of `candidates` (owned by `owner`, or orphans of its namespace) it may count, by its selector.

    Matching orphans are adopted, owned ones that no longer match are released. A deleted owner does neither; a
    deleted orphan is not adopted.
    """
    claim = Claim()
    selector = (owner.get("spec") or {}).get("selector")
    owner_is_live = not owner["metadata"].get("deletionTimestamp")
    for candidate in candidates:
        metadata = candidate["metadata"]
        matches = label_selectors.selects(selector, metadata.get("labels") or {})
        controller = controller_uid(candidate)
        if controller == uid(owner):
            if matches:
                claim.owned.append(candidate)
            elif owner_is_live:
                rest = [ref for ref in metadata["ownerReferences"] if ref.get("uid") != uid(owner)]
                claim.actions.append(Update(kind, replaced(candidate, ("metadata", "ownerReferences"), rest)))
        elif controller is None and matches and owner_is_live and not metadata.get("deletionTimestamp"):
            references = [*(metadata.get("ownerReferences") or ()), controller_ref(owner)]
            adopted = replaced(candidate, ("metadata", "ownerReferences"), references)
            claim.owned.append(adopted)
            claim.actions.append(Update(kind, adopted))
    return claim
