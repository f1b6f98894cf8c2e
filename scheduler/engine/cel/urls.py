"""
URLs, as in url("https://example.com:80/path?k=v").getHost().

Source: apiserver/pkg/cel/library/urls.go (kubernetes 1.36), Go's net/url.
"""

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote, unquote_plus

from scheduler.engine.cel.functions import SLOW, function, succeeds
from scheduler.engine.cel.networks import parse_address
from scheduler.engine.cel.values import CelError, Meter, Value, go_quote, register_type

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_PORT: Final = re.compile(r"(:[0-9]*)?")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.S)
_USERINFO: Final = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_HOST_CHARACTERS: Final = re.compile(r"[^A-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>\"%\x80-\U0010ffff]")
#: The characters that a path shown as written may hold unescaped.
_RAW_PATH: Final = re.compile(r"[A-Za-z0-9\-_.~!$&'()*+,;=:@\[\]%/]*")
_PATH_SAFE: Final = "$&+,/:;=@"


@dataclass(frozen=True, slots=True)
class URL:
    """A URL, parsed. It is equal to another with the same parts."""

    scheme: str
    opaque: str
    user: str
    host: str
    raw_path: str
    query: str
    fragment: str


register_type(URL, "kubernetes.URL")


def _check_escapes(text: str) -> None:
    bad = _BAD_ESCAPE.search(text)
    if bad:
        raise CelError(f"invalid URL escape {go_quote(bad[0])}")


def _host(scheme: str, host: str) -> str:
    opening = host.rfind("[")
    if opening > 0:
        raise CelError("invalid IP-literal")
    if opening == 0:
        closing = host.rfind("]")
        if closing < 0:
            raise CelError("missing ']' in host")
        _check_port(host[closing + 1 :])
        _check_escapes(host)
        try:
            address, _ = parse_address(unquote(host[1:closing]))
        except CelError as error:
            raise CelError(f"invalid host: {error}") from None
        if address.version == 4:
            raise CelError("invalid IP-literal")
    elif ":" in host:
        colon = host.find(":") if scheme in ("http", "https") else host.rfind(":")
        _check_port(host[colon:])
    _check_escapes(host)
    escape = next((part for part in re.findall(r"%..", host) if part[1] < "8" and part != "%25"), "")
    bad = _HOST_CHARACTERS.search(host)
    if escape and not (bad and bad.start() < host.index(escape)):
        raise CelError(f"invalid URL escape {go_quote(escape)}")
    if bad:
        raise CelError(f"invalid character {go_quote(bad[0])} in host name")
    return unquote(host)


def _check_port(port: str) -> None:
    if not _PORT.fullmatch(port):
        raise CelError(f"invalid port {go_quote(port)} after host")


def parse_url(text: str) -> URL:
    """Return the parts of an absolute URL or path; raise CelError, in the words of net/url, if the text is neither."""
    if _CONTROL.search(text):
        raise CelError("net/url: invalid control character in URL")
    if not text:
        raise CelError("empty url")
    if text == "*":
        return URL("", "", "", "", "*", "", "")
    shape = _SCHEME.match(text)
    if text.startswith(":"):
        raise CelError("missing protocol scheme")
    scheme = shape[1].lower() if shape else ""
    # A fragment counts as a part of the path or the query first: this is how upstream checks a URL.
    _parse_rest(scheme, text[shape.end() :] if shape else text)
    whole, _, fragment = text.partition("#")
    opaque, user, host, raw_path, query = _parse_rest(scheme, whole[shape.end() :] if shape else whole)
    _check_escapes(fragment)
    return URL(scheme, opaque, user, host, raw_path, query, unquote(fragment))


def _parse_rest(scheme: str, rest: str) -> tuple[str, str, str, str, str]:
    path, _, query = rest.partition("?")
    if not path.startswith("/"):
        if scheme:
            return path, "", "", "", query
        raise CelError("invalid URI for request")
    user, host = "", ""
    if scheme and path.startswith("//"):
        authority, slash, tail = path[2:].partition("/")
        path = slash + tail
        user, at, host_text = authority.rpartition("@")
        host = _host(scheme, host_text)
        if at and not _USERINFO.fullmatch(user):
            raise CelError("net/url: invalid userinfo")
        _check_escapes(user)
    _check_escapes(path)
    return "", user, host, path, query


def _url(text: str) -> URL:
    try:
        return parse_url(text)
    except CelError as error:
        prefix = "URL parse error during conversion from string"
        raise CelError(f"{prefix}: parse {go_quote(text)}: {error}") from None


def _name_and_port(url: URL) -> tuple[str, str]:
    name, colon, port = url.host.rpartition(":")
    if not colon or not _PORT.fullmatch(f":{port}"):
        name, port = url.host, ""
    return name[1:-1] if name.startswith("[") and name.endswith("]") else name, port


def _escaped_path(url: URL) -> str:
    if _RAW_PATH.fullmatch(url.raw_path):
        return url.raw_path
    return quote(unquote(url.raw_path, errors="surrogateescape"), safe=_PATH_SAFE, errors="surrogateescape")


def _query(meter: Meter, url: URL) -> dict[Value, Value]:
    meter.charge(6 * len(url.query))
    result: dict[Value, Value] = {}
    for part in url.query.split("&"):
        if not part or ";" in part or _BAD_ESCAPE.search(part):
            continue
        key, _, value = part.partition("=")
        result.setdefault(unquote_plus(key), []).append(unquote_plus(value))
    return result


OVERLOADS: Final = [
    *function("url", "(string) -> url", _url, steps=SLOW, per_item=1),
    *function("isURL", "(string) -> bool", succeeds(parse_url), steps=SLOW, per_item=1),
    *function("getScheme", "url.() -> string", lambda url: url.scheme),
    *function("getHost", "url.() -> string", lambda url: url.host),
    *function("getHostname", "url.() -> string", lambda url: _name_and_port(url)[0]),
    *function("getPort", "url.() -> string", lambda url: _name_and_port(url)[1]),
    *function("getEscapedPath", "url.() -> string", _escaped_path, steps=SLOW),
    *function("getQuery", "url.() -> map(string, list(string))", _query, steps=SLOW, takes_meter=True),
]
