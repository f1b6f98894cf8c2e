"""
The verbs over HTTP: from a request's target, query and body to the store, and back to bytes.

Source: apiserver pkg/endpoints/handlers (kubernetes 1.36).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from scheduler.engine.syntax import field_errors
from scheduler.sandbox.devcluster import status
from scheduler.sandbox.devcluster.access.authentication import Authenticator
from scheduler.sandbox.devcluster.admission.shapes import check_request, unknown_fields
from scheduler.sandbox.devcluster.admission.strategies import strategy_of
from scheduler.sandbox.devcluster.http.negotiation import (
    JSON,
    AnswerForm,
    decoded_body,
    decoded_object,
    encoded,
    object_in_form,
)
from scheduler.sandbox.devcluster.http.routes import Target
from scheduler.sandbox.devcluster.kinds import BINDING, POD, JsonObject, Kind
from scheduler.sandbox.devcluster.printing import table
from scheduler.sandbox.devcluster.storage.binding import bind
from scheduler.sandbox.devcluster.storage.eviction import evict
from scheduler.sandbox.devcluster.storage.lists import list_page, parse_options
from scheduler.sandbox.devcluster.storage.patches import PatchType, patched
from scheduler.sandbox.devcluster.storage.scale import SCALE, scale_of, set_scale
from scheduler.sandbox.devcluster.storage.store import OTHER_NAMESPACE, ObjectStore, check_name
from scheduler.sandbox.devcluster.webhooks import WebhookAdmission, warning_headers

_PATCH_TYPES: Final = {one.value: one for one in PatchType}
_APPLY: Final = PatchType.APPLY.value


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
    def dry_run(self) -> bool:
        """Return True if nothing is stored."""
        return self.query.get("dryRun") == "All"

    def object(self, kind: Kind) -> JsonObject:
        """Return the object in the body. Raises: StatusError 400 if there is none, or one of another kind."""
        obj = decoded_object(self.body, self.content_type, kind.kind)
        api_version, name = (str(obj.get(key) or "") for key in ("apiVersion", "kind"))
        api_version, name = api_version or kind.api_version, name or kind.kind
        if (api_version, name) != (kind.api_version, kind.kind):
            version = api_version.rpartition("/")[2]
            raise status.bad_request(f'{name} in version "{version}" cannot be handled as a {kind.kind}')
        metadata = obj.get("metadata")
        if metadata is not None and not isinstance(metadata, dict):
            raise status.bad_request(f"{kind.kind}.metadata must be an object")
        if refusal := self.strict_error(kind, obj):
            version = kind.api_version.rpartition("/")[2]
            raise status.bad_request(
                f'{kind.kind} in version "{version}" cannot be handled as a {kind.kind}: {refusal}'
            )
        return obj

    def strict_error(self, kind: Kind, body: JsonObject) -> str:
        """
        Return why strict decoding refuses the body, empty if it does not; `fieldValidation=Warn` adds warnings.

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

    def __init__(self, store: ObjectStore, admission: WebhookAdmission, authenticator: Authenticator) -> None:
        self._store = store
        self._authenticator = authenticator
        self._admission = admission

    async def handle(self, call: Call) -> web.Response:
        """Answer any verb but watch; only webhooks make it wait. Raises: StatusError."""
        if self._creates_pod(call) and self._admission.is_needed():
            return await self._create_through_webhooks(call)
        handler = {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
        }[call.verb]
        response = handler(call)
        response.headers.extend(warning_headers(call.warnings))
        return response

    # -- reading ---------------------------------------------------------------------------------------------

    def _get(self, call: Call) -> web.Response:
        target = call.target
        revision = self._store.revision(target.kind, target.scope, target.name or "")
        if target.subresource == "scale":
            scale = object_in_form(SCALE, scale_of(revision.obj), call.form, self._store.now_s())
            return _answer(scale)
        if not call.form.is_table:
            return web.Response(body=revision.document(target.kind), content_type=JSON)
        return self._shaped(call, revision.as_kind(target.kind))

    def _list(self, call: Call) -> web.Response:
        target = call.target
        options = parse_options(target.kind, call.query)
        kind = target.kind
        revisions, metadata = list_page(self._store, kind, target.namespace, options)
        if not call.form.is_table:
            head = encoded({"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata})
            items = b",".join([one.item(kind) for one in revisions])
            return web.Response(body=head[:-1] + b',"items":[' + items + b"]}\n", content_type=JSON)
        objects = [one.as_kind(kind) for one in revisions]
        whole = call.form.whole_objects
        return _answer(table(kind, objects, self._store.now_s(), metadata=metadata, whole=whole))

    # -- writing ---------------------------------------------------------------------------------------------

    def _create(self, call: Call) -> web.Response:
        target = call.target
        if target.subresource == "binding":
            return self._bind(call)
        if target.subresource == "token":
            return self._issue_token(call)
        if target.subresource == "eviction":
            eviction = decoded_object(call.body, call.content_type, "Eviction")
            _check_namespace(eviction, target)
            evict(self._store, target.scope, target.name or "", eviction, dry_run=call.dry_run)
            return _success(201)
        created = self._store.create(
            target.kind, target.scope, call.object(target.kind), dry_run=call.dry_run
        )
        return self._shaped(call, created, code=201)

    def _issue_token(self, call: Call) -> web.Response:
        target = call.target
        request = decoded_object(call.body, call.content_type, "TokenRequest")
        check_request("TokenRequest", request)
        _check_namespace(request, target)
        answer = self._authenticator.issue(target.scope, target.name or "", request)
        return _answer(answer, code=201)

    def _creates_pod(self, call: Call) -> bool:
        target = call.target
        if target.kind is not POD or target.subresource:
            return False
        is_applied = call.verb == "patch" and call.content_type.partition(";")[0].strip() == _APPLY
        return call.verb == "create" or (
            is_applied and self._store.find(POD, target.scope, target.name or "") is None
        )

    async def _create_through_webhooks(self, call: Call) -> web.Response:
        """Create the pod as webhooks change it, or refuse it; their warnings go with either answer."""
        pod, namespace = call.object(POD), call.target.scope
        _check_namespace(pod, call.target)
        try:
            created = await self._admission.create(namespace, pod, call.warnings, dry_run=call.dry_run)
            response = self._shaped(call, created, code=201)
        except status.StatusError as forbidden_error:
            response = status_response(forbidden_error)
        response.headers.extend(warning_headers(call.warnings))
        return response

    def _bind(self, call: Call) -> web.Response:
        target = call.target
        binding = call.object(BINDING)
        _check_namespace(binding, target)
        bind(self._store, target.scope, target.name or "", binding, dry_run=call.dry_run)
        return _success(201)

    def _update(self, call: Call) -> web.Response:
        target = call.target
        if target.subresource == "scale":
            return self._scaled(call, call.object(SCALE))
        obj = call.object(target.kind)
        obj.setdefault("metadata", {})
        _check_namespace(obj, target)
        check_name(obj["metadata"], target.name or "")
        stored = self._store.update(
            target.kind, obj, subresource=target.subresource or None, dry_run=call.dry_run
        )
        return self._shaped(call, stored)

    def _patch(self, call: Call) -> web.Response:
        target = call.target
        media_type = call.content_type.partition(";")[0].strip()
        patch_type = _PATCH_TYPES.get(media_type)
        if patch_type is None:
            raise status.refused(415, "415: Unsupported Media Type")
        patch: Any = decoded_body(call.body, call.content_type)
        if target.subresource == "scale":
            return self._patch_scale(call, patch, patch_type)
        if isinstance(patch, dict) and (refusal := call.strict_error(target.kind, patch)):
            of_patch = field_errors.invalid("patch", patch, refusal)
            raise status.invalid(Kind("", "", "", "", ""), "", [of_patch])
        existed = self._store.find(target.kind, target.scope, target.name or "") is not None
        stored = self._store.patch(
            target.kind,
            target.scope,
            target.name or "",
            patch,
            patch_type=patch_type,
            subresource=target.subresource or None,
            dry_run=call.dry_run,
        )
        return self._shaped(call, stored, code=200 if existed else 201)

    def _patch_scale(self, call: Call, patch: Any, patch_type: PatchType) -> web.Response:  # noqa: ANN401 - any JSON
        target = call.target
        stored = scale_of(self._store.get(target.kind, target.scope, target.name or ""))
        # A patch without a version applies to any version.
        del stored["metadata"]["resourceVersion"]
        # Scales have no lists, so a strategic patch is a merge patch.
        merging = PatchType.JSON if patch_type is PatchType.JSON else PatchType.MERGE
        scale = patched(stored, patch, merging, SCALE)
        check_request(SCALE.kind, scale)
        return self._scaled(call, scale)

    def _scaled(self, call: Call, scale: JsonObject) -> web.Response:
        kind, name = call.target.kind, call.target.name or ""
        stored = set_scale(self._store, kind, call.target.scope, name, scale=scale, dry_run=call.dry_run)
        return _answer(stored)

    # -- deleting --------------------------------------------------------------------------------------------

    def _delete(self, call: Call) -> web.Response:
        target = call.target
        options = _delete_options(call)
        preconditions = options.get("preconditions") or {}
        deletion = self._store.delete(
            target.kind,
            target.scope,
            target.name or "",
            uid=preconditions.get("uid"),
            grace_period_s=options.get("gracePeriodSeconds"),
            propagation=options.get("propagationPolicy"),
            dry_run=bool(options.get("dryRun")),
        )
        if not deletion.gone or strategy_of(target.kind).returns_deleted:
            return self._shaped(call, deletion.obj)
        metadata = deletion.obj["metadata"]
        details = {"name": metadata["name"], "kind": target.kind.plural, "uid": metadata["uid"]}
        if target.kind.group:
            details["group"] = target.kind.group
        return _success(200, details)

    def _shaped(self, call: Call, obj: JsonObject, *, code: int = 200) -> web.Response:
        shaped = object_in_form(call.target.kind, obj, call.form, self._store.now_s())
        return _answer(shaped, code=code)


def _answer(body: JsonObject, *, code: int = 200) -> web.Response:
    return web.Response(body=encoded(body), status=code, content_type=JSON)


def _success(code: int, details: JsonObject | None = None) -> web.Response:
    """Return a Status that says Success: the answer to bindings, evictions and most deletions."""
    body: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        body["details"] = details
    else:
        body["code"] = code
    return web.Response(body=encoded(body), status=code, content_type=JSON)


def status_response(error: status.StatusError) -> web.Response:
    """Return a refusal as an HTTP answer."""
    body = encoded(error.to_object())
    return web.Response(body=body, status=error.code, content_type=JSON, headers=error.headers)


def _check_namespace(obj: JsonObject, target: Target) -> None:
    """Raise StatusError 400 if the object names another namespace than the URL; fill in the URL's."""
    metadata: JsonObject = obj.get("metadata") or {}
    if target.namespace is not None:
        if metadata.get("namespace") not in (None, "", target.namespace):
            raise status.bad_request(OTHER_NAMESPACE)
        obj["metadata"] = {**metadata, "namespace": target.namespace}


def _delete_options(call: Call) -> JsonObject:
    """Return DeleteOptions from the body, completed from the query. Raises: StatusError 400."""
    options = decoded_object(call.body, call.content_type, "DeleteOptions") if call.body.strip() else {}
    if (grace := call.query.get("gracePeriodSeconds", "")).isdecimal():
        options.setdefault("gracePeriodSeconds", int(grace))
    if call.dry_run:
        options["dryRun"] = ["All"]
    return options
