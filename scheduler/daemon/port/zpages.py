"""
/statusz and /flagz as kube-scheduler's: plain text for people, JSON and YAML for programs that name a version.

Source: apiserver/pkg/server/{statusz,flagz}, apiserver/pkg/endpoints/handlers/negotiation (kubernetes 1.36).
Differences: the text has always the same delimiter, and every JSON document is indented.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import yaml
from aiohttp import web

#: Programs know the component by this name.
COMPONENT: Final = "kube-scheduler"
#: What upstream lists.
_PATHS: Final = ("/configz", "/flagz", "/healthz", "/livez", "/metrics", "/readyz")
_GROUP: Final = "config.k8s.io"
#: Versions of both kinds, with the header that warns of them.
_WARNING_BY_VERSION: Final = {
    "v1alpha1": '299 - "This version of the {} endpoint is deprecated. Please use a newer version."',
    "v1beta1": "",
}
_TEXT: Final = "text/plain"
_JSON: Final = "application/json"
_YAML: Final = "application/yaml"
#: In the order in which a wildcard chooses.
_MEDIA_TYPES: Final = (_JSON, _YAML, _TEXT)
_NOT_ACCEPTABLE: Final = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": f"only the following media types are accepted: {', '.join(_MEDIA_TYPES)}",
    "reason": "NotAcceptable",
    "code": 406,
}
_HEAD: Final = (
    "\n{} {}\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees "
    "and is for debugging purposes only.\n"
)


@dataclass(frozen=True, slots=True)
class _Clause:
    """One media range of an Accept header."""

    type: str
    subtype: str
    quality: float
    parameters: Mapping[str, str]

    def covers(self, media_type: str) -> bool:
        """Return whether the range contains this media type."""
        main, _, sub = media_type.partition("/")
        return (self.type, self.subtype) in ((main, sub), (main, "*"), ("*", "*"))


def negotiate(accept: str, kind: str) -> tuple[str, str] | None:
    """
    Return the media type and the version of a response of this kind (`Statusz`, `Flagz`); None if `accept` has none.

    JSON and YAML need the parameters `g`, `v` and `as`, and plain text allows none of them and has no version.
    """
    if not accept.strip():
        return _TEXT, ""
    for clause in _clauses(accept):
        named = {name: clause.parameters.get(name, "") for name in ("g", "v", "as")}
        if clause.parameters.get("stream") or clause.parameters.get("sv"):
            continue
        is_plain = clause.parameters.keys().isdisjoint(named)
        is_structured = (named["g"], named["as"]) == (_GROUP, kind) and named["v"] in _WARNING_BY_VERSION
        for media_type in _MEDIA_TYPES:
            if clause.covers(media_type) and (is_plain if media_type == _TEXT else is_structured):
                return media_type, named["v"]
    return None


def _clauses(accept: str) -> Sequence[_Clause]:
    """Return the media ranges that can be read: the specific ones first, then by quality, then in their order."""
    clauses: list[_Clause] = []
    for part in accept.split(","):
        media_range, *pairs = part.strip(" ").split(";")
        main, slash, sub = (each.strip(" ") for each in media_range.partition("/"))
        if (not slash and main != "*") or "/" in sub:
            continue
        named = {
            name.strip(" "): value for name, equals, value in (p.partition("=") for p in pairs) if equals
        }
        quality = _quality(named.pop("q", "1"))
        parameters = {name: value.strip(" ") for name, value in named.items()}
        clauses.append(_Clause(main, sub if slash else "*", quality, parameters))
    return sorted(clauses, key=lambda each: (each.type == "*", each.subtype == "*", -each.quality))


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


@dataclass(frozen=True, slots=True)
class ZPages:
    """Both pages of one process."""

    #: The value of every flag by its name.
    flags: Mapping[str, str]
    version: str
    #: The version of Kubernetes whose decisions these are.
    emulated_version: str
    #: Paths of ours that the port serves.
    further_paths: tuple[str, ...] = ()
    now_s: Callable[[], float] = time.monotonic
    #: Seconds since 1970, and on the monotonic clock.
    started_s: float = field(default_factory=time.time)
    started_at_s: float = field(default_factory=time.monotonic)

    async def statusz(self, request: web.Request) -> web.Response:
        """Answer /statusz."""
        started = datetime.fromtimestamp(self.started_s, UTC)
        paths = sorted((*_PATHS, *self.further_paths))
        up_s = int(self.now_s() - self.started_at_s)
        text = (
            f"\nStarted: {started:%a %b} {started.day:>2} {started:%H:%M:%S UTC %Y}\n"
            f"Up: {up_s // 3600} hr {up_s // 60 % 60:02} min {up_s % 60:02} sec\n"
            f"Go version: {_runtime()}\nBinary version: {self.version}\nEmulation version: {self.emulated_version}\n"
            f"Paths: {' '.join(paths)}\n"
        )
        fields = {
            "startTime": f"{started:%Y-%m-%dT%H:%M:%SZ}",
            "uptimeSeconds": up_s,
            "goVersion": _runtime(),
            "binaryVersion": self.version,
            "emulationVersion": self.emulated_version,
            "paths": list(paths),
        }
        return _answer(request, "Statusz", text, fields)

    async def flagz(self, request: web.Request) -> web.Response:
        """Answer /flagz."""
        flags = dict(sorted(self.flags.items()))
        text = "".join(f"{name}={value}\n" for name, value in flags.items())
        return _answer(request, "Flagz", text, {"flags": flags})


def _runtime() -> str:
    """Return what stands where upstream has the version of Go."""
    return f"python{platform.python_version()}"


def _answer(request: web.Request, kind: str, text: str, fields: Mapping[str, object]) -> web.Response:
    accept = request.headers.get("Accept", "")
    chosen = negotiate(accept, kind)
    page = kind.lower()
    if chosen is None:
        # As upstream: a program that asked for YAML gets the refusal as YAML.
        is_yaml = next(
            (c.covers(_YAML) and not c.covers(_JSON) and not c.parameters for c in _clauses(accept)), False
        )
        return _encoded(_NOT_ACCEPTABLE, _YAML if is_yaml else _JSON, status=406)
    media_type, version = chosen
    if media_type == _TEXT:
        body = _HEAD.format(COMPONENT, page) + text
        return _response(body, f"{_TEXT}; charset=utf-8")
    document = {
        "kind": kind,
        "apiVersion": f"{_GROUP}/{version}",
        "metadata": {"name": COMPONENT},
        **fields,
    }
    content_type = f"{media_type};g={_GROUP};v={version};as={kind}"
    response = _encoded(document, media_type, content_type=content_type)
    if warning := _WARNING_BY_VERSION[version]:
        response.headers["Warning"] = warning.format(page)
    return response


def _encoded(
    document: Mapping[str, object], media_type: str, *, content_type: str = "", status: int = 200
) -> web.Response:
    body = yaml.safe_dump(dict(document)) if media_type == _YAML else json.dumps(document, indent=2)
    return _response(body, content_type or media_type, status=status)


def _response(text: str, content_type: str, *, status: int = 200) -> web.Response:
    headers = {"Content-Type": content_type, "Cache-Control": "no-cache, private"}
    return web.Response(body=text.encode(), status=status, headers=headers)
