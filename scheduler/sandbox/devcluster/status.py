"""
Status objects: the API server's errors, with upstream's reasons, codes and messages.

Source: apimachinery pkg/api/errors/errors.go (kubernetes 1.36).
"""

from collections.abc import Sequence
from typing import Final

from scheduler.engine.syntax.field_errors import FieldError, aggregate
from scheduler.engine.syntax.field_errors import invalid as invalid_field
from scheduler.sandbox.devcluster.kinds import JsonObject, Kind

_MODIFIED: Final = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


class StatusError(Exception):
    """
    A refused request, as a Status object states it.

    Raised by the store and the routes. The server turns it into an HTTP answer; in-process callers catch it and tell
    cases apart by `reason`.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: JsonObject | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details

    def to_object(self) -> JsonObject:
        """Return the Status object for a body, or for an ERROR event of a watch."""
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            **({"reason": self.reason} if self.reason else {}),
            **({"details": self.details} if self.details is not None else {}),
            "code": self.code,
        }


#: Code -> the reason that goes with it, where a message says all the rest.
_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def refused(code: int, message: str, *, retry_after_s: int = 0) -> StatusError:
    """Return a refusal with the usual reason of its code; `retry_after_s` > 0 is sent as a header too."""
    details: JsonObject = {"retryAfterSeconds": retry_after_s} if retry_after_s else {}
    return StatusError(code, _REASONS.get(code, ""), message, details=details)


def bad_request(message: str) -> StatusError:
    """Return a 400: the request cannot be understood."""
    return refused(400, message)


def expired(message: str) -> StatusError:
    """Return a 410: the resource version or continue token is older than the history."""
    return refused(410, message)


def _about(
    code: int,
    reason: str,
    message: str,
    kind: Kind,
    name: str,
    *,
    kind_name: str = "",
    causes: Sequence[JsonObject] = (),
) -> StatusError:
    """Return a refusal whose details name the object, without empty fields, as Go's omitempty does."""
    details = {"name": name, "group": kind.group, "kind": kind_name or kind.plural, "causes": list(causes)}
    return StatusError(code, reason, message, details={key: value for key, value in details.items() if value})


def not_found(kind: Kind, name: str) -> StatusError:
    """Return a 404: the object does not exist."""
    return _about(404, "NotFound", f'{kind.qualified} "{name}" not found', kind, name)


def already_exists(kind: Kind, name: str) -> StatusError:
    """Return a 409: the name is taken."""
    return _about(409, "AlreadyExists", f'{kind.qualified} "{name}" already exists', kind, name)


def conflict(kind: Kind, name: str, why: str = _MODIFIED, *, resource: str = "") -> StatusError:
    """Return a 409: the write rests on an outdated state. `resource` replaces the kind's name (pods/binding)."""
    message = f'Operation cannot be fulfilled on {resource or kind.qualified} "{name}": {why}'
    return _about(409, "Conflict", message, kind, name, kind_name=resource)


def invalid(kind: Kind, name: str, errors: Sequence[FieldError]) -> StatusError:
    """Return a 422 with a cause for each field that breaks a rule."""
    message = f'{kind.kind}{"." + kind.group if kind.group else ""} "{name}" is invalid: {aggregate(errors)}'
    causes = [error.cause() for error in errors]
    return _about(422, "Invalid", message, kind, name, kind_name=kind.kind, causes=causes)


def forbidden(kind: Kind, name: str, why: str, *, causes: Sequence[JsonObject] = ()) -> StatusError:
    """Return a 403: admission refuses the request."""
    subject = f'{kind.qualified} "{name}"' if name else kind.qualified
    return _about(403, "Forbidden", f"{subject} is forbidden: {why}", kind, name, causes=causes)


def too_large_resource_version(asked: int, current: int) -> StatusError:
    """Return a 504: the resource version lies in the future."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return StatusError(504, "Timeout", message, details={"causes": [cause], "retryAfterSeconds": 1})


def resource_version_required(kind: Kind, name: str) -> StatusError:
    """Return a 422: the update lacks the resourceVersion that the kind requires. Upstream names the resource here."""
    error = invalid_field("metadata.resourceVersion", 0, "must be specified for an update")
    message = f'{kind.qualified} "{name}" is invalid: {aggregate([error])}'
    return _about(422, "Invalid", message, kind, name, causes=[error.cause()])


def internal(message: str) -> StatusError:
    """Return a 500: the server itself failed."""
    text = f"Internal error occurred: {message}"
    return StatusError(500, "InternalError", text, details={"causes": [{"message": message}]})
