"""
Rules of single fields as a table: what they must have, what they may be, what they are by default, what never changes.

For kinds whose other rules a scheduler does not depend on: of what upstream refuses beside, an API server has the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler.engine.syntax import field_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.sandbox.devcluster.admission.strategy import Strategy
from scheduler.sandbox.devcluster.kinds import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldRules:
    """Rules by path, such as `spec.drivers[].name`; several paths of one rule are words of one text."""

    #: Fields that must not be absent or empty.
    required: str = ""
    #: Path -> the values that a field may have, if it has one.
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Path -> the value of an absent field.
    defaults: Mapping[str, object] = field(default_factory=dict)
    #: Fields that no update changes.
    fixed: str = ""
    #: Path -> why the field cannot be used here.
    refused: Mapping[str, str] = field(default_factory=dict)

    def set_defaults(self, obj: JsonObject) -> None:
        """Fill in absent fields."""
        for path, value in self.defaults.items():
            for _, holder, name in _places(obj, path, make=True):
                if name not in holder:
                    holder[name] = value.copy() if isinstance(value, dict | list) else value

    def errors(self, obj: JsonObject) -> Iterator[FieldError]:
        """Yield an error for every field that is missing, or has a value that it may not have."""
        for path in self.required.split():
            for where, holder, name in _places(obj, path):
                if not holder.get(name):
                    yield field_errors.required(where)
        for path, values in self.choices.items():
            for where, holder, name in _places(obj, path):
                value = holder[name] if isinstance(holder, list) else holder.get(name)
                if value is not None and value not in values:
                    yield field_errors.not_supported(where, value, values)
        for path, why in self.refused.items():
            for where, holder, name in _places(obj, path):
                if holder.get(name):
                    yield field_errors.forbidden(where, why)

    def update_errors(self, new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
        """Yield an error for every fixed field that differs."""
        for path in self.fixed.split():
            (where, holder, name), (_, stored, _) = next(_places(new, path)), next(_places(old, path))
            if (holder.get(name) or None) != (stored.get(name) or None):
                yield field_errors.invalid(where, holder.get(name), "field is immutable")


def ruled(
    rules: FieldRules,
    *,
    validate: Callable[[JsonObject], Iterable[FieldError]] = lambda _: (),
    set_defaults: Callable[[JsonObject], None] = lambda _: None,
    **traits: Any,  # noqa: ANN401 - the other fields of a Strategy
) -> Strategy:
    """Return a strategy with these rules; `set_defaults` and `validate` come after them."""

    def default(obj: JsonObject) -> None:
        rules.set_defaults(obj)
        set_defaults(obj)

    traits.setdefault("validate_update", rules.update_errors)
    return Strategy(set_defaults=default, validate=lambda obj: [*rules.errors(obj), *validate(obj)], **traits)


def _places(
    part: JsonObject, path: str, where: str = "", *, make: bool = False
) -> Iterator[tuple[str, Any, Any]]:
    """Yield (its path, what holds it, its name there) of every field that a path names; an empty list has none."""
    head, _, rest = path.partition(".")
    name = head.removesuffix("[]")
    at = f"{where}.{name}" if where else name
    if head.endswith("[]"):
        items = part.get(name) or []
        for index, item in enumerate(items):
            if rest:
                yield from _places(item, rest, f"{at}[{index}]", make=make)
            else:
                yield f"{at}[{index}]", items, index
    elif rest:
        child = part.setdefault(name, {}) if make else part.get(name) or {}
        yield from _places(child, rest, at, make=make)
    else:
        yield at, part, name
