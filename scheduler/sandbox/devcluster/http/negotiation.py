"""
Bodies: the form in which a client wants an answer, and the objects in the bytes that it sent.

Source: apiserver pkg/endpoints/handlers/negotiation and pkg/endpoints/handlers/response.go (kubernetes 1.36).
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import msgspec
import yaml

from scheduler.sandbox.devcluster import status
from scheduler.sandbox.devcluster.admission.shapes import check_request
from scheduler.sandbox.devcluster.http import protobuf
from scheduler.sandbox.devcluster.kinds import JsonObject, Kind
from scheduler.sandbox.devcluster.printing import table

JSON: Final = "application/json"


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The form of an answer: the objects themselves, or a Table of them."""

    is_table: bool = False
    #: Each row carries the whole object, as `kubectl get --sort-by` needs it.
    whole_objects: bool = False


@lru_cache(maxsize=64)
def answer_form(accept: str, include_object: str) -> AnswerForm:
    """Return the first form that a request accepts and the server can write. Raises: StatusError 406."""
    for offer in accept.split(",") if accept else ["*/*"]:
        media_type, *parameters = (part.strip() for part in offer.split(";"))
        found = dict(part.partition("=")[::2] for part in parameters)
        if media_type not in ("*/*", "application/*", JSON):
            continue
        if "as" not in found:
            return AnswerForm()
        if (found["as"], found.get("g"), found.get("v")) == ("Table", "meta.k8s.io", "v1"):
            return AnswerForm(True, whole_objects=include_object == "Object")
    raise status.refused(406, f"406: Not Acceptable\n\nAvailable representations: {JSON}")


def decoded_body(body: bytes, content_type: str) -> Any:  # noqa: ANN401 - any JSON value may be sent
    """
    Return the JSON value in a body of JSON, YAML or (objects only) protobuf; None for an empty one.

    Raises: StatusError 415 for another content type, 400 if the bytes do not parse.
    """
    media_type = content_type.partition(";")[0].strip() or JSON
    if not body:
        return None
    if media_type == protobuf.MEDIA_TYPE:
        return protobuf.decoded(body)
    try:
        if media_type.endswith("yaml"):
            return yaml.safe_load(body)
        if media_type.endswith("json"):
            return msgspec.json.decode(body)
    except (msgspec.DecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise status.bad_request(f"the body does not parse as {media_type}: {error}") from error
    raise status.refused(415, f"the body of the request was in an unknown format: {media_type}")


def decoded_object(body: bytes, content_type: str, kind_name: str) -> JsonObject:
    """Return the object in a body; `kind_name` is the expected kind. Raises: StatusError 400, 415."""
    value = decoded_body(body, content_type)
    if not isinstance(value, dict):
        raise status.bad_request(f"the object provided is unrecognized (must be of type {kind_name})")
    check_request(kind_name, value)
    return value


def object_in_form(kind: Kind, obj: JsonObject, form: AnswerForm, now_s: float) -> JsonObject:
    """Return one object in the form that the client wants."""
    if form.is_table:
        version = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return table(kind, [obj], now_s, metadata=version, whole=form.whole_objects)
    without_type = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
    return {"kind": kind.kind, "apiVersion": kind.api_version, **without_type}
