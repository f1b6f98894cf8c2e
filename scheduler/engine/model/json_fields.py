"""
Classes whose fields say where they stand in the JSON of an API object.

    @dataclass(frozen=True, slots=True)
    class CsiDriver:
        key: Name
        tracks_capacity: Annotated[bool, At("spec.storageCapacity")]

A `Reader` decodes objects of such a class by a msgspec struct that has these fields alone, so that no other is looked
at, and `field_tree` tells which they are. Without `At` a field stands under its own name in camelCase. An absent field
has its type's empty value; null counts as absent, as in Go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache, partial
from operator import is_not
from sys import intern
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Final, Generic, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct, inspect

from scheduler.engine.model import wire
from scheduler.engine.model.wire import MalformedObjectError

#: Fields to keep: True keeps the whole value, a mapping keeps these fields of an object or of each item of a list.
FieldTree = Mapping[str, "FieldTree | bool"]

_T = TypeVar("_T")
_Parse = Callable[..., Any]

#: Different values of a field that are kept to be shared; 40,000 devices have a few types and capacities.
_MAX_SHARED: Final = 65536


@dataclass(frozen=True, slots=True)
class At:
    """
    Where a field stands in JSON, and how its value is read.

    Attributes:
        path: names with dots between them; empty for the field's own name. An annotation's key goes after `#`.
        more: further paths; `parse` gets a value of each.
        of: the type in JSON, of each path; None if the field has the same.
        parse: returns the field's value; not called for None if the field may be None.
        is_shared: whether equal values are one object.
    """

    path: str = ""
    more: tuple[str, ...] = ()
    of: Any = None
    parse: _Parse | None = None
    is_shared: bool = False


#: A field that is not in JSON; it has a default, or the caller gives its value to `Reader.decode`.
UNREAD: Final = At("-")


def annotation(key: str) -> str:
    """Return the path of an annotation."""
    return f"metadata.annotations#{key}"


def namespace_and_name(namespace: str, name: str) -> tuple[str, str]:
    """Return both; raise MalformedObjectError if one is empty."""
    if not name or not namespace:
        raise MalformedObjectError("metadata.name and metadata.namespace are required")
    return namespace, name


def _key(namespace: str, name: str) -> str:
    return intern("/".join(namespace_and_name(namespace, name)))


def _namespace(namespace: str, name: str) -> str:
    return namespace_and_name(namespace, name)[0]


def _name(name: str) -> str:
    if not name:
        raise MalformedObjectError("metadata.name is required")
    return intern(name)


is_given: Final = partial(is_not, None)

Name = Annotated[str, At("metadata.name", parse=_name)]
Namespaced = Annotated[str, At("metadata.namespace", ("metadata.name",), parse=_namespace)]
NamespacedKey = Annotated[str, At("metadata.namespace", ("metadata.name",), parse=_key)]
Uid = Annotated[str, At("metadata.uid", parse=intern)]
ResourceVersion = Annotated[str, At("metadata.resourceVersion")]
Created = Annotated[str, At("metadata.creationTimestamp")]
Terminating = Annotated[bool, At("metadata.deletionTimestamp", of=str | None, parse=is_given)]


@dataclass(frozen=True, slots=True)
class _Read:
    """A type in JSON, the value of an absent field, what converts other values, and whether None stays None."""

    json: Any
    absent: Any
    make: _Parse | None = None
    is_optional: bool = False


class Reader(Generic[_T]):
    """Decodes objects of a class. `places`: override where its fields stand."""

    def __init__(self, cls: type[_T], **places: At) -> None:
        hints = get_type_hints(cls, include_extras=True)
        tree: dict[str, Any] = {}
        #: The arguments of a call of the class, as source text: `key=make_0(raw.a_metadata.a_name)`.
        arguments: list[str] = []
        makes: dict[str, Any] = {"cls": cls}
        for number, each in enumerate(fields(cls)):  # type: ignore[arg-type]
            at = places.get(each.name) or _at(hints[each.name])
            if at.path == UNREAD.path:
                continue
            make, paths = f"make_{number}", (at.path or _camel(each.name), *at.more)
            if at.more:
                types = at.of if isinstance(at.of, tuple) else (at.of or str,) * len(paths)
                read = [_read_as(of) for of in types]
                makes[make], is_optional = at.parse, False
            else:
                read = [_read_as(Annotated[hints[each.name], at])]
                makes[make], is_optional = read[0].make, read[0].is_optional
            values = [f"raw.{_placed(tree, path, one)}" for path, one in zip(paths, read, strict=True)]
            text = ", ".join(values)
            if makes[make] is not None and is_optional:
                text = f"None if (value := {text}) is None else {make}(value)"
            elif makes[make] is not None:
                text = f"{make}({text})"
            arguments.append(f"{each.name}={text}")
        #: Returns the object made of a decoded struct. Compiled from source text, as the methods of dataclasses are:
        #: calls through tables of functions take half as long again.
        self.make: Callable[..., _T] = eval(  # noqa: S307
            f"lambda raw, **given: cls({', '.join(arguments)}, **given)", makes
        )
        self.struct = _struct(cls.__name__, tree)
        self._decoder = msgspec.json.Decoder(self.struct)

    def each(self, raws: Iterable[Struct]) -> tuple[_T, ...]:
        """Return the objects of what stood in JSON as a list."""
        return tuple(map(self.make, raws))

    def decode(self, kind: str, data: bytes | msgspec.Raw, /, **given: object) -> _T:
        """Return the object of a JSON document; raise MalformedObjectError, which names kind, field and problem."""
        return wire.decoded(lambda document: self.make(self._decoder.decode(document), **given), kind, data)


@lru_cache(maxsize=256)
def _reader_of(cls: type[Any]) -> Reader[Any]:
    return Reader(cls)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _at(hint: Any) -> At:  # noqa: ANN401 - any type
    """Return the place that a type has; the last one if there are several."""
    found = At()
    for each in get_args(hint) if get_origin(hint) is Annotated else ():
        if isinstance(each, At):
            said = {field.name: getattr(each, field.name) for field in fields(At)}
            found = replace(found, **{name: value for name, value in said.items() if value})
    return found


def _placed(tree: dict[str, Any], path: str, read: _Read) -> str:
    """Note what stands at the path, and return the path of the struct's attributes to it."""
    before, _, key = path.partition("#")
    names = [*before.split("."), *([key] if key else [])]
    inner = tree
    for name in names[:-1]:
        inner = inner.setdefault(name, {})
    inner.setdefault(names[-1], read)
    return ".".join(map(_attribute, names))


def _attribute(name: str) -> str:
    return "a_" + "".join(each if each.isalnum() else "_" for each in name)


def _struct(name: str, tree: Mapping[str, Any]) -> type[Struct]:
    members: list[tuple[str, Any, Any]] = []
    for key, read in tree.items():
        if isinstance(read, _Read):
            members.append((_attribute(key), read.json, read.absent))
        else:
            inner = _struct(f"{name}{key.capitalize()}", read)
            members.append((_attribute(key), inner, inner()))
    rename = {_attribute(key): key for key in tree}
    return msgspec.defstruct(name, members, frozen=True, gc=False, rename=rename)


def _read_as(hint: Any) -> _Read:  # noqa: ANN401 - any type
    """Return how a value of this type is read."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(*args)
    if origin in (Union, UnionType):
        inner = [each for each in args if each is not NoneType]
        if len(inner) > 1:
            return _Read(hint, None)
        read = _read_as(inner[0])
        return _Read(read.json | None, None, read.make, is_optional=True)
    if origin is tuple:
        read = _read_as(args[0])
        return _Read(tuple[read.json, ...], (), _of_each(read.make))  # type: ignore[name-defined]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        read = _read_as(args[1])
        return _Read(dict[args[0], read.json], {}, _of_each_value(read.make))  # type: ignore[name-defined,valid-type]
    if is_dataclass(hint):
        reader = _reader_of(hint)  # type: ignore[arg-type]
        return _Read(reader.struct, reader.struct(), reader.make)
    return _Read(hint, (origin or hint)())


def _annotated(hint: Any, *notes: Any) -> _Read:  # noqa: ANN401 - any type
    at = _at(Annotated[hint, *notes])
    is_optional = NoneType in get_args(hint)
    read = _read_as(hint if at.of is None else at.of | None if is_optional else at.of)
    make = read.make
    if at.parse is not None:
        make = at.parse if make is None else _both(make, at.parse)
    if at.is_shared:
        make = lru_cache(maxsize=_MAX_SHARED)(make or (lambda value: value))
    bounds = tuple(each for each in notes if isinstance(each, msgspec.Meta))
    json = Annotated[read.json, *bounds] if bounds else read.json
    return _Read(json, read.absent, make, is_optional)


def _both(first: _Parse, second: _Parse) -> _Parse:
    return lambda value: second(first(value))


def _of_each(make: _Parse | None) -> _Parse | None:
    return make and (lambda values: tuple(map(make, values)))


def _of_each_value(make: _Parse | None) -> _Parse | None:
    return make and (lambda values: {key: make(value) for key, value in values.items()})


def field_tree(struct: type[Struct], parts: Mapping[str, Any] = MappingProxyType({})) -> FieldTree:
    """
    Return the fields that a struct reads, except messages and a driver's own parameters, which may have any text.

    `parts`: the types of fields that stay JSON until their object is looked at, by name.
    """
    return _tree_of(cast("inspect.StructType", inspect.type_info(struct)), parts)


def _tree_of(struct: inspect.StructType, parts: Mapping[str, Any]) -> FieldTree:
    return {
        name: _kept(inspect.type_info(parts[name]) if name in parts else each.type, parts)
        for each in struct.fields
        if (name := each.encode_name) not in ("message", "parameters")
    }


def _kept(of: inspect.Type, parts: Mapping[str, Any]) -> FieldTree | bool:
    match of:
        case inspect.StructType():
            return _tree_of(of, parts)
        case inspect.VarTupleType(item):
            return _kept(item, parts)
        case inspect.UnionType(types):
            given = [each for each in types if not isinstance(each, inspect.NoneType)]
            return _kept(given[0], parts) if len(given) == 1 else True
    return True
