"""
What a kind adds to the verbs of the store: defaults, preparation and validation.

A `Strategy` without arguments suits kinds that are plain data; `strategies` has one for every other kind.

Source: apiserver pkg/registry/rest (kubernetes 1.36) and the strategies under pkg/registry.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.names import subdomain_faults
from scheduler.sandbox.devcluster.kinds import JsonObject, Kind

#: Find an object by kind, namespace and name; None if there is none.
Find = Callable[[Kind, str, str], JsonObject | None]
#: Return all objects of a kind.
ListAll = Callable[[Kind], Iterable[JsonObject]]


@dataclass(frozen=True, slots=True)
class View:
    """The facts that a strategy may use beside the object: the time, as metadata prints it, and other objects."""

    now: str
    find: Find
    list_all: ListAll


def _leave(*_: object) -> None:
    """Change nothing."""


def _accept(*_: object) -> tuple[FieldError, ...]:
    return ()


def _no_grace(_: JsonObject, __: int | None) -> int:
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """How one kind is created, updated and deleted. Preparing functions change the object that they are given."""

    #: Fill in absent fields, at creation and at every update.
    set_defaults: Callable[[JsonObject], None] = _leave
    #: Write what only the server may write into a new object. May raise StatusError, as admission does.
    prepare_create: Callable[[JsonObject, View], None] = _leave
    #: Restore in the new state (first argument) what a client may not change of the stored one (second).
    prepare_update: Callable[[JsonObject, JsonObject, View], None] = _leave
    #: Return the faults of a name.
    name_faults: Callable[[str], list[str]] = subdomain_faults
    #: Return the rules that an object breaks, beside those of metadata, at creation and at every update.
    validate: Callable[[JsonObject], Iterable[FieldError]] = _accept
    #: Return the rules that only a new object can break.
    validate_create: Callable[[JsonObject], Iterable[FieldError]] = _accept
    #: Return the rules that the change to a new state (first argument) breaks.
    validate_update: Callable[[JsonObject, JsonObject], Iterable[FieldError]] = _accept
    #: Return the rules that the change to a new status (of the first argument) breaks.
    validate_status: Callable[[JsonObject, JsonObject], Iterable[FieldError]] = _accept
    #: Return the seconds from the deletion to the end of the object, given the seconds asked for, if any.
    grace_period_s: Callable[[JsonObject, int | None], int] = _no_grace
    #: metadata.generation is 1 at creation and grows when anything but metadata and status changes.
    has_generation: bool = False
    #: `status` belongs to the status subresource: updates keep the stored one.
    has_status: bool = False
    #: The status of a new object, whatever the client wrote; None keeps the client's.
    initial_status: JsonObject | None = None
    #: A deletion answers with the deleted object, not with a Status.
    returns_deleted: bool = False
    #: An update without resourceVersion is accepted.
    unconditional_update: bool = True
    #: The status subresource may also change labels and annotations.
    status_writes_metadata: bool = False
