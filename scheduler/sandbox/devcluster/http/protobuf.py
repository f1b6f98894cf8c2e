"""
Bodies in Kubernetes' protobuf encoding, read only.

kubectl 1.32 and later send the objects that `create deployment`, `create role`, `autoscale`, `drain`, `auth can-i` and
their like make up in no other form. `schemas` numbers the fields that those commands fill. A field without a number
that is not empty is refused, never dropped. Answers are always JSON.

Source: apimachinery pkg/runtime/serializer/protobuf (kubernetes 1.36).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from scheduler.sandbox.devcluster import status
from scheduler.sandbox.devcluster.kinds import JsonObject
from scheduler.sandbox.devcluster.schemas import STRUCTURES, Field

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\x00"
_VARINT, _BYTES = 0, 2

#: Message -> its fields by their number.
_FIELDS: Final[Mapping[str, Mapping[int, Field]]] = {
    name: {field.number: field for field in fields if field.number is not None}
    for name, fields in STRUCTURES.items()
}


def decoded(body: bytes) -> JsonObject:
    """
    Return the object in `body`, as JSON would state it.

    Raises: StatusError 400 if the bytes are no such object, 415 if it has fields that are not read here.
    """
    if not body.startswith(_MAGIC):
        raise status.bad_request(
            "error decoding the body of the request: it does not begin as protobuf does here"
        )
    try:
        envelope = dict(_entries(body[len(_MAGIC) :]))
        type_meta = {number: _text(value) for number, value in _entries(_bytes(envelope.get(1, b"")))}
        kind = type_meta.get(2, "")
        if kind not in _FIELDS:
            raise status.refused(415, f"{kind} is not read from protobuf here: send JSON")
        obj = _message(kind, _bytes(envelope.get(2, b"")))
    except (IndexError, ValueError, RecursionError) as error:
        raise status.bad_request(f"error decoding the body of the request: {error}") from error
    return {"kind": kind, "apiVersion": type_meta.get(1, ""), **obj}


def _entries(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (field number, value) of one message's fields, in their order. Raises: IndexError, ValueError."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if wire_type != _BYTES:
            raise ValueError(f"protobuf wire type {wire_type} is not read here")
        length, position = _varint(data, position)
        if position + length > len(data):
            raise ValueError("protobuf ends amid a field")
        yield number, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
        if shift > 63:
            raise ValueError("a protobuf integer is too long")


def _message(message: str, data: bytes) -> JsonObject:
    obj: JsonObject = {}
    for number, raw in _entries(data):
        field = _FIELDS[message].get(number)
        if field is None:
            if not _is_blank(raw):
                why = f"field {number} of {message} is not read from protobuf here: send JSON"
                raise status.refused(415, why)
        elif field.is_map:
            key, value = _map_entry(field.type, _bytes(raw))
            obj.setdefault(field.name, {})[key] = value
        elif field.repeats:
            obj.setdefault(field.name, []).append(_value(field.type, raw))
        else:
            value = _value(field.type, raw)
            if field.is_pointer or value not in ("", 0, None, {}):
                obj[field.name] = value
    return obj


def _is_blank(raw: int | bytes) -> bool:
    """Return True if a field is zero, empty, or a message of such fields: Go writes unset structs so."""
    if not raw or isinstance(raw, int):
        return not raw
    try:
        return all(_is_blank(value) for _, value in _entries(raw))
    except (IndexError, ValueError):
        return False


def _map_entry(of_type: str, data: bytes) -> tuple[str, object]:
    entry = dict(_entries(data))
    return _text(entry.get(1, b"")), _value(of_type, entry.get(2, b""))


def _value(of_type: str, raw: int | bytes) -> object:
    scalar = _SCALARS.get(of_type)
    return scalar(raw) if scalar else _message(of_type, _bytes(raw))


def _bytes(raw: int | bytes) -> bytes:
    if isinstance(raw, int):
        raise ValueError("protobuf has a number where a message is expected")  # noqa: TRY004 - of the body, not of us
    return raw


def _text(raw: int | bytes) -> str:
    return _bytes(raw).decode()


def _integer(raw: int | bytes) -> int:
    if not isinstance(raw, int):
        raise ValueError("protobuf has a message where a number is expected")  # noqa: TRY004 - as above
    return raw - (1 << 64) if raw >= 1 << 63 else raw


def _int_or_string(raw: int | bytes) -> int | str:
    parts = dict(_entries(_bytes(raw)))
    return _text(parts.get(3, b"")) if parts.get(1) else _integer(parts.get(2, 0))


_SCALARS: Final[Mapping[str, Callable[[int | bytes], Any]]] = {
    "s": _text,
    "i": _integer,
    "b": lambda raw: bool(_integer(raw)),
    "y": lambda raw: base64.b64encode(_bytes(raw)).decode(),
    "o": _int_or_string,
}
