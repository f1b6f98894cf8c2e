"""
The proxy of an address by HTTPS_PROXY, HTTP_PROXY and NO_PROXY, read as client-go reads them. No IO.

Source: golang.org/x/net/http/httpproxy (0.50), which client-go 1.36 asks. Difference: a proxy of another kind than http
and https, such as socks5, is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from scheduler.errors import SettingsError


def proxy_of(server: str, environ: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy through which the server is asked; None for none. Raises SettingsError."""
    url = urlsplit(server)
    variable, proxy = _first(environ, f"{url.scheme}_proxy")
    host = (url.hostname or "").rstrip(".")
    port = url.port or (443 if url.scheme == "https" else 80)
    if not proxy or host == "localhost" or _is_loopback(host):
        return None
    _, exempt = _first(environ, "no_proxy")
    if any(_matches(pattern.strip().lower(), host, port) for pattern in exempt.split(",")):
        return None
    found = proxy if "://" in proxy else f"http://{proxy}"
    if not is_http_url(found):
        # The value may hold a password.
        raise SettingsError(
            f"${variable}", "", "no such URL", "an http or https URL such as http://proxy:3128"
        )
    return urlsplit(found).geturl()


def is_http_url(url: str) -> bool:
    """Return True for an http or https URL with a host."""
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _first(environ: Mapping[str, str], name: str) -> tuple[str, str]:
    """Return the name, in upper or lower case, of the variable that is set, and its value."""
    given = [each for each in (name.upper(), name) if environ.get(each)]
    return (given[0], environ[given[0]]) if given else (name, "")


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return address is not None and address.is_loopback


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address, None for a name. An IPv4-mapped IPv6 address becomes the IPv4 address."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return (address.version == 6 and address.ipv4_mapped) or address


def _matches(pattern: str, host: str, port: int) -> bool:
    """Return whether the host is exempt: by *, by a network, or by an address or domain, maybe with a port."""
    if pattern == "*":
        return True
    address = _address(host)
    if "/" in pattern:
        try:
            return address is not None and address in ip_network(pattern, strict=False)
        except ValueError:
            return False
    name, wanted_port = pattern, ""
    if not pattern.endswith("]") and (pattern.startswith("[") or pattern.count(":") == 1):
        name, _, wanted_port = pattern.rpartition(":")
    name = name.strip("[]")
    if not name or (wanted_port and wanted_port != str(port)):
        return False
    if (exempt := _address(name)) is not None:
        return exempt == address
    domain = name.removeprefix("*")
    return host.endswith(domain) if domain.startswith(".") else host == domain or host.endswith(f".{domain}")
