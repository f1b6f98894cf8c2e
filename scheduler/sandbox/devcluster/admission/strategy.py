"""
What a kind adds to the verbs of the store: defaults, preparation and validation.

A `Strategy` without arguments suits kinds that are plain data; `strategies` has one for every other kind.

Source: apiserver pkg/registry/rest (kubernetes 1.36) and the strategies under pkg/registry.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from string import ascii_letters
from typing import Any

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.names import subdomain_faults
from scheduler.sandbox.devcluster.kinds import JsonObject, Kind

#: Find an object by kind, namespace and name; None if there is none.
Find = Callable[[Kind, str, str], JsonObject | None]
#: Return all objects of a kind.
ListAll = Callable[[Kind], Iterable[JsonObject]]
#: Return what is wrong with a name.
Faults = Callable[[str], list[str]]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """
    How one kind is created and updated. Preparing functions change the object that they are given.

    Rules of single fields are a table by path, such as `spec.drivers[].name`; several paths of one rule are words of
    one text. A path ends at an absent part that is marked by `?`. Kinds whose other rules a scheduler does not depend
    on have no more: an API server has the rest.
    """

    #: Fields that must not be absent or empty.
    required: str = ""
    #: Path -> the grammar of a name in the field, if there is one.
    names: Mapping[str, Faults] = field(default_factory=dict)
    #: Fields of which no two in a list are equal; those of one text are as if of one list.
    unique: Sequence[str] = ()
    #: Path -> the values that a field may have, if it has one.
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Numbers that must not be below 0.
    natural: str = ""
    #: Path -> why the field cannot be used here.
    refused: Mapping[str, str] = field(default_factory=dict)
    #: Path -> the value of an absent field.
    defaults: Mapping[str, object] = field(default_factory=dict)
    #: Fields that no update changes.
    fixed: str = ""
    #: Fill in absent fields that no path names, at creation and at every update.
    set_defaults: Callable[[JsonObject], None] = _leave
    #: Write what only the server may write into a new object. May raise StatusError, as admission does.
    prepare_create: Callable[[JsonObject, View], None] = _leave
    #: Restore in the new state (first argument) what a client may not change of the stored one (second).
    prepare_update: Callable[[JsonObject, JsonObject, View], None] = _leave
    #: The grammar of the object's name.
    name_faults: Faults = subdomain_faults
    #: Return the rules that an object breaks beside those of the table.
    validate: Callable[[JsonObject], Iterable[FieldError]] = _accept
    #: Return the rules that only a new object can break.
    validate_create: Callable[[JsonObject], Iterable[FieldError]] = _accept
    #: Return the rules that the change to a new state (first argument) breaks.
    validate_update: Callable[[JsonObject, JsonObject], Iterable[FieldError]] = _accept
    #: Return the rules that the change to a new status (of the first argument) breaks.
    validate_status: Callable[[JsonObject, JsonObject], Iterable[FieldError]] = _accept
    #: metadata.generation is 1 at creation and grows when anything but metadata and status changes.
    has_generation: bool = False
    #: The status of a new object, whatever the client wrote; None keeps the client's.
    initial_status: JsonObject | None = None
    #: An update without resourceVersion is accepted.
    unconditional_update: bool = True

    def fill_in(self, obj: JsonObject) -> None:
        """Fill in absent fields."""
        for path, value in self.defaults.items():
            for _, holder, name in _places(obj, path, make=True):
                # In Go empty text equals an absent field, but for pointers, where nobody sends it.
                if holder.get(name) in (None, ""):
                    holder[name] = value.copy() if isinstance(value, dict | list) else value
        self.set_defaults(obj)

    def errors(self, obj: JsonObject) -> Iterator[FieldError]:
        """Yield the rules that an object breaks, beside those of metadata, at creation and at every update."""
        for where, value in _values(obj, *self.required.split()):
            if not value:
                yield field_errors.required(where)
        for path, faults in self.names.items():
            for where, value in _values(obj, path):
                yield from (
                    field_errors.invalid(where, value, fault) for fault in faults(value or "") if value
                )
        for paths in self.unique:
            seen: set[object] = set()
            for where, value in _values(obj, *paths.split()):
                if value and value in seen:
                    yield field_errors.duplicate(where, value)
                seen.add(value)
        for path, values in self.choices.items():
            for where, value in _values(obj, path):
                if value and value not in values:
                    yield field_errors.not_supported(where, value, values)
        for where, value in _values(obj, *self.natural.split()):
            if value and value < 0:
                yield field_errors.invalid(where, value, "must be greater than or equal to 0")
        for path, why in self.refused.items():
            yield from (field_errors.forbidden(where, why) for where, value in _values(obj, path) if value)
        yield from self.validate(obj)

    def update_errors(self, new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
        """Yield the rules that the change to a new state breaks."""
        for path in self.fixed.split():
            ((where, value),), ((_, stored),) = _values(new, path), _values(old, path)
            if (value or None) != (stored or None):
                yield field_errors.invalid(where, value, "field is immutable")
        yield from self.validate_update(new, old)


def remove(obj: JsonObject, paths: Iterable[str]) -> None:
    """Remove the fields that the paths name."""
    for path in paths:
        for _, holder, name in _places(obj, path):
            holder.pop(name, None)


def _values(obj: JsonObject, *paths: str) -> Iterator[tuple[str, Any]]:
    """Yield (its path, its value) of every field that one of the paths names."""
    for path in paths:
        for where, holder, name in _places(obj, path):
            yield where, holder[name] if isinstance(holder, list) else holder.get(name)


@lru_cache(maxsize=256)
def _steps(path: str) -> list[tuple[str, str]]:
    """Return the steps of a path: each a name and its mark, `[]` for a list, `?` for a part that may be absent."""
    return [(step.rstrip("[]?"), step.lstrip(ascii_letters)) for step in path.split(".")]


def _places(obj: JsonObject, path: str, *, make: bool = False) -> list[tuple[str, Any, Any]]:
    """Return path, holder and name or index of each field that `path` names. `make`: make missing parents."""
    *steps, (last, last_mark) = _steps(path)
    holders: list[tuple[str, Any]] = [("", obj)]
    for name, mark in steps:
        found: list[tuple[str, Any]] = []
        for at, part in holders:
            if mark == "[]":
                found += [(f"{at}{name}[{index}].", one) for index, one in enumerate(part.get(name) or ())]
            else:
                child = part.setdefault(name, {}) if make else part.get(name) or {}
                found += [(f"{at}{name}.", child)] if child or mark != "?" else []
        holders = found
        if not holders:
            return []
    if last_mark == "[]":
        lists = [(at, part.get(last) or []) for at, part in holders]
        return [(f"{at}{last}[{index}]", items, index) for at, items in lists for index in range(len(items))]
    return [(f"{at}{last}", part, last) for at, part in holders]
