"""
The verbs over HTTP: from a request's target, query and body to the store, and back to bytes.

Source: apiserver pkg/endpoints/handlers (kubernetes 1.36).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from aiohttp import web

from scheduler.engine.syntax import field_errors
from scheduler.sandbox.devcluster import status
from scheduler.sandbox.devcluster.access.authentication import Authenticator
from scheduler.sandbox.devcluster.admission.shapes import check_shape, unknown_fields
from scheduler.sandbox.devcluster.http.negotiation import (
    JSON,
    AnswerForm,
    decoded_body,
    decoded_object,
    object_in_form,
)
from scheduler.sandbox.devcluster.http.routes import Target
from scheduler.sandbox.devcluster.kinds import BINDING, EVICTION, POD, SCALE, TOKEN_REQUEST, JsonObject, Kind
from scheduler.sandbox.devcluster.printing import table
from scheduler.sandbox.devcluster.storage.binding import bind
from scheduler.sandbox.devcluster.storage.eviction import evict
from scheduler.sandbox.devcluster.storage.lists import list_page, number_in, parse_options
from scheduler.sandbox.devcluster.storage.patches import PatchType
from scheduler.sandbox.devcluster.storage.scale import scale_of, set_scale
from scheduler.sandbox.devcluster.storage.store import OTHER_NAMESPACE, ObjectStore, check_name
from scheduler.sandbox.devcluster.webhooks import create, warning_headers

#: The kind in a refusal of the request itself, which is about no object.
_OPTIONS: Final = Kind("", "", "", "", "")
_DELETE_OPTIONS: Final = Kind("meta.k8s.io", "v1", "DeleteOptions", "", "")
_PROPAGATION: Final = ("Foreground", "Background", "Orphan", "nil")
_PATCH_TYPES: Final = {one.value: one for one in PatchType}


@dataclass(frozen=True, slots=True)
class Call:
    """One request, parsed."""

    target: Target
    query: Mapping[str, str]
    body: bytes
    content_type: str
    form: AnswerForm
    verb: str
    #: What the answer warns of.
    warnings: list[str] = field(default_factory=list)

    @property
    def key(self) -> tuple[Kind, str, str]:
        """Return kind, namespace and name of the object that is asked for."""
        return self.target.kind, self.target.scope, self.target.name or ""

    @property
    def dry_run(self) -> bool:
        """Return True if nothing is stored. Raises StatusError 422 for another value than All."""
        asked = self.query.get("dryRun", "")
        if asked not in ("", "All"):
            fault = field_errors.not_supported("dryRun", [asked], ["All"])
            raise status.invalid(_OPTIONS, "", [fault])
        return bool(asked)

    def object(self, kind: Kind) -> JsonObject:
        """
        Return the object in the body, with the namespace of the URL.

        Raises: StatusError 400 if there is none, or one of another kind or namespace.
        """
        obj = decoded_object(self.body, self.content_type, kind.kind)
        api_version, name = obj.get("apiVersion") or kind.api_version, obj.get("kind") or kind.kind
        if (api_version, name) != (kind.api_version, kind.kind):
            version = str(api_version).rpartition("/")[2]
            raise status.bad_request(f'{name} in version "{version}" cannot be handled as a {kind.kind}')
        if refusal := self.strict_error(kind, obj):
            raise status.bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {refusal}'
            )
        metadata = {} if obj.get("metadata") is None else obj["metadata"]
        if not isinstance(metadata, dict) or not isinstance(metadata.get("namespace") or "", str):
            check_shape(kind, obj)
        if self.target.namespace is not None:
            if metadata.get("namespace") not in (None, "", self.target.namespace):
                raise status.bad_request(OTHER_NAMESPACE)
            metadata["namespace"] = self.target.namespace
        return {**obj, "metadata": metadata}

    def patch(self) -> Any:  # noqa: ANN401 - an object, or the operations of a JSON patch
        """Return the patch in the body. Raises: StatusError 400, 415."""
        return decoded_body(self.body, self.content_type)

    def strict_error(self, kind: Kind, body: JsonObject) -> str:
        """
        Return why `fieldValidation=Strict` refuses the body, empty if it does not; `Warn` adds warnings.

        Difference: without the parameter nothing is warned of.
        """
        validation = self.query.get("fieldValidation")
        unknown = unknown_fields(kind, body) if validation in ("Strict", "Warn") else []
        texts = [f'unknown field "{path}"' for path in unknown]
        if validation == "Strict" and texts:
            return f"strict decoding error: {', '.join(texts)}"
        self.warnings.extend(texts)
        return ""


class Handlers:
    """The verbs on one store, each answering a call."""

    def __init__(self, store: ObjectStore, authenticator: Authenticator) -> None:
        self._store = store
        self._authenticator = authenticator

    async def handle(self, call: Call) -> web.Response:
        """Answer any verb but watch; only webhooks make it wait. Warnings go with a refusal, too."""
        try:
            response = await self._answered(call)
        except status.StatusError as refused:
            response = status_response(refused)
        response.headers.extend(warning_headers(call.warnings))
        return response

    async def _answered(self, call: Call) -> web.Response:
        """Return the answer. Raises: StatusError."""
        match call.verb, call.target.subresource:
            case "get", "scale":
                return _answer(scale_of(self._store.get(*call.key)))
            case "get", _:
                return self._shaped(call, self._store.get(*call.key))
            case "list", _:
                return self._list(call)
            case "create", "binding":
                bind(self._store, *call.key[1:], call.object(BINDING), dry_run=call.dry_run)
                return _success(201)
            case "create", "eviction":
                evict(self._store, *call.key[1:], call.object(EVICTION), dry_run=call.dry_run)
                return _success(201)
            case "create", "token":
                return _answer(self._authenticator.issue(*call.key[1:], call.object(TOKEN_REQUEST)), code=201)
            case "create", _:
                return await self._created(call, call.object(call.target.kind))
            case "update" | "patch", "scale":
                scale = call.object(SCALE) if call.verb == "update" else call.patch()
                return _answer(set_scale(self._store, *call.key, scale, dry_run=call.dry_run))
            case "update", _:
                return self._update(call)
            case "patch", _:
                return await self._patch(call)
            case _:
                return self._delete(call)

    def _list(self, call: Call) -> web.Response:
        kind = call.target.kind
        options = parse_options(kind, call.query)
        revisions, metadata = list_page(self._store, kind, call.target.namespace, options)
        if not call.form.is_table:
            head = msgspec.json.encode(
                {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": metadata}
            )
            items = b",".join([one.item(kind) for one in revisions])
            return web.Response(body=head[:-1] + b',"items":[' + items + b"]}\n", content_type=JSON)
        objects = [one.as_kind(kind) for one in revisions]
        whole = call.form.whole_objects
        return _answer(table(kind, objects, self._store.now_s(), metadata=metadata, whole=whole))

    async def _created(self, call: Call, obj: JsonObject) -> web.Response:
        kind, namespace, _ = call.key
        created = await create(self._store, kind, namespace, obj, call.warnings, dry_run=call.dry_run)
        return self._shaped(call, created, code=201)

    def _update(self, call: Call) -> web.Response:
        kind, _, name = call.key
        obj = call.object(kind)
        check_name(obj["metadata"], name)
        subresource = call.target.subresource or None
        return self._shaped(
            call, self._store.update(kind, obj, subresource=subresource, dry_run=call.dry_run)
        )

    async def _patch(self, call: Call) -> web.Response:
        patch_type = _PATCH_TYPES.get(call.content_type.partition(";")[0].strip())
        if patch_type is None:
            raise status.refused(415, "415: Unsupported Media Type")
        patch, subresource = call.patch(), call.target.subresource or None
        if isinstance(patch, dict) and (refusal := call.strict_error(call.target.kind, patch)):
            of_patch = field_errors.invalid("patch", patch, refusal)
            raise status.invalid(_OPTIONS, "", [of_patch])
        if patch_type is PatchType.APPLY and subresource is None and self._store.find(*call.key) is None:
            return await self._created(call, patch)
        stored = self._store.patch(
            *call.key, patch, patch_type=patch_type, subresource=subresource, dry_run=call.dry_run
        )
        return self._shaped(call, stored)

    def _delete(self, call: Call) -> web.Response:
        options = _delete_options(call)
        deletion = self._store.delete(
            *call.key,
            uid=(options.get("preconditions") or {}).get("uid"),
            grace_period_s=options.get("gracePeriodSeconds"),
            propagation=options.get("propagationPolicy"),
            dry_run=bool(options.get("dryRun")),
        )
        kind, metadata = call.target.kind, deletion.obj["metadata"]
        if not deletion.gone or kind is POD:
            return self._shaped(call, deletion.obj)
        details = {"name": metadata["name"], "kind": kind.plural, "uid": metadata["uid"]}
        return _success(200, details | ({"group": kind.group} if kind.group else {}))

    def _shaped(self, call: Call, obj: JsonObject, *, code: int = 200) -> web.Response:
        shaped = object_in_form(call.target.kind, obj, call.form, self._store.now_s())
        return _answer(shaped, code=code)


def _delete_options(call: Call) -> JsonObject:
    """Return the options of a deletion: those of the body, or else of the query. Raises: StatusError 400, 422."""
    query = call.query
    options: JsonObject = {
        "gracePeriodSeconds": number_in(query, "gracePeriodSeconds"),
        "propagationPolicy": query.get("propagationPolicy"),
        "dryRun": [query["dryRun"]] if query.get("dryRun") else [],
    }
    if call.body.strip():
        options = decoded_object(call.body, call.content_type, "DeleteOptions")
    faults = []
    if (policy := options.get("propagationPolicy")) and policy not in _PROPAGATION:
        faults.append(field_errors.not_supported("propagationPolicy", policy, _PROPAGATION))
    if (dry_run := options.get("dryRun") or []) not in ([], ["All"]):
        faults.append(field_errors.not_supported("dryRun", dry_run, ["All"]))
    if faults:
        raise status.invalid(_DELETE_OPTIONS, "", faults)
    return options


def _answer(body: JsonObject, *, code: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), status=code, content_type=JSON)


def _success(code: int, details: JsonObject | None = None) -> web.Response:
    """Return a Status that says Success: the answer to bindings, evictions and most deletions."""
    body: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return _answer(body | ({"code": code} if details is None else {"details": details}), code=code)


def status_response(error: status.StatusError) -> web.Response:
    """Return a refusal as an HTTP answer."""
    delay_s = (error.details or {}).get("retryAfterSeconds")
    headers = {"Retry-After": str(delay_s)} if delay_s else {}
    body = msgspec.json.encode(error.to_object())
    return web.Response(body=body, status=error.code, content_type=JSON, headers=headers)
