"""
IP addresses and networks, as in cidr("10.0.0.0/8").containsIP("10.1.2.3").

Source: apiserver/pkg/cel/library/{ip,cidr}.go (kubernetes 1.36), Go's net/netip.
"""

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from scheduler.engine.cel.functions import SLOW, function
from scheduler.engine.cel.values import CelError, Value, go_quote, register_type

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_GROUP: Final = re.compile(r"[0-9a-fA-F]*")


@dataclass(frozen=True, slots=True)
class IP:
    """An address."""

    address: Address


@dataclass(frozen=True, slots=True)
class CIDR:
    """A network as written: bits after the mask are kept."""

    address: Address
    bits: int

    @property
    def masked(self) -> int:
        """Return the network's bits as a number."""
        shift = self.address.max_prefixlen - self.bits
        return int(self.address) >> shift << shift


register_type(IP, "net.IP")
register_type(CIDR, "net.CIDR")


class _AddressError(Exception):
    """No address; the message is that of netip.ParseAddr."""

    def __init__(self, text: str, message: str, at: str = "") -> None:
        super().__init__(f"ParseAddr({go_quote(text)}): {message}" + (f" (at {go_quote(at)})" if at else ""))


def _parse_ipv4(text: str, whole: str) -> bytes:
    fields: list[int] = []
    digits = ""
    for index, character in enumerate(text):
        if character in "0123456789":
            if digits == "0":
                raise _AddressError(whole, "IPv4 field has octet with leading zero")
            digits += character
            if int(digits) > 255:
                raise _AddressError(whole, "IPv4 field has value >255")
        elif character == ".":
            if index in (0, len(text) - 1) or text[index - 1] == ".":
                raise _AddressError(whole, "IPv4 field must have at least one digit", text[index:])
            if len(fields) == 3:
                raise _AddressError(whole, "IPv4 address too long")
            fields.append(int(digits))
            digits = ""
        else:
            raise _AddressError(whole, "unexpected character", text[index:])
    if len(fields) < 3:
        raise _AddressError(whole, "IPv4 address too short")
    return bytes([*fields, int(digits or 0)])


def _parse_ipv6(text: str) -> tuple[bytes, str]:
    """Return the 16 bytes and the zone of an address."""
    rest, percent, zone = text.partition("%")
    if percent and not zone:
        raise _AddressError(text, "zone must be a non-empty string")
    parsed, ellipsis = b"", -1
    if rest.startswith("::"):
        ellipsis, rest = 0, rest[2:]
        if not rest:
            return bytes(16), zone
    while len(parsed) < 16:
        group = _GROUP.match(rest)[0]  # type: ignore[index]
        if len(group) > 4:
            raise _AddressError(text, "each group must have 4 or less digits", rest)
        if not group:
            raise _AddressError(text, "each colon-separated field must have at least one digit", rest)
        if rest[len(group) : len(group) + 1] == ".":
            if ellipsis < 0 and len(parsed) != 12:
                raise _AddressError(
                    text, "embedded IPv4 address must replace the final 2 fields of the address", rest
                )
            if len(parsed) > 12:
                raise _AddressError(
                    text, "too many hex fields to fit an embedded IPv4 at the end of the address", rest
                )
            parsed, rest = parsed + _parse_ipv4(rest, text), ""
            break
        parsed, rest = parsed + int(group, 16).to_bytes(2), rest[len(group) :]
        if not rest:
            break
        if rest[0] != ":":
            raise _AddressError(text, "unexpected character, want colon", rest)
        if len(rest) == 1:
            raise _AddressError(text, "colon must be followed by more characters", rest)
        rest = rest[1:]
        if rest[0] == ":":
            if ellipsis >= 0:
                raise _AddressError(text, "multiple :: in address", rest)
            ellipsis, rest = len(parsed), rest[1:]
            if not rest:
                break
    if rest:
        raise _AddressError(text, "trailing garbage after address", rest)
    if len(parsed) < 16 and ellipsis < 0:
        raise _AddressError(text, "address string too short")
    if len(parsed) == 16 and ellipsis >= 0:
        raise _AddressError(text, "the :: must expand to at least one field of zeros")
    return parsed[: max(ellipsis, 0)] + bytes(16 - len(parsed)) + parsed[max(ellipsis, 0) :], zone


def _parse_address(text: str) -> tuple[Address, str]:
    """Return the address and its zone."""
    first = next((character for character in text if character in ".:%"), "")
    if first == ".":
        return ipaddress.IPv4Address(_parse_ipv4(text, text)), ""
    if first == ":":
        parsed, zone = _parse_ipv6(text)
        return ipaddress.IPv6Address(parsed), zone
    raise _AddressError(text, "missing IPv6 address" if first else "unable to parse IP")


def is_ipv6(text: str) -> str | None:
    """Return None if the text is an IPv6 address, else why not."""
    try:
        address, _ = _parse_address(text)
    except _AddressError as error:
        return f"invalid host: {error}"
    return "invalid IP-literal" if address.version == 4 else None


def _is_mapped(address: Address) -> bool:
    return isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None


def _ip(text: str) -> IP:
    try:
        address, zone = _parse_address(text)
    except _AddressError as error:
        raise CelError(
            f"IP Address {go_quote(text)} parse error during conversion from string: {error}"
        ) from None
    if zone:
        raise CelError(f"IP address {go_quote(text)} with zone value is not allowed")
    if _is_mapped(address):
        raise CelError(f"IPv4-mapped IPv6 address {go_quote(text)} is not allowed")
    return IP(address)


def _prefix(text: str) -> CIDR:
    address_text, slash, bits = text.rpartition("/")
    if not slash:
        raise _PrefixError(text, "no '/'")
    try:
        address, zone = _parse_address(address_text)
    except _AddressError as error:
        raise _PrefixError(text, str(error)) from None
    if zone:
        raise _PrefixError(text, "IPv6 zones cannot be present in a prefix")
    if not re.fullmatch("[0-9]|[1-9][0-9]{1,17}", bits):
        raise _PrefixError(text, f"bad bits after slash: {go_quote(bits)}")
    if int(bits) > address.max_prefixlen:
        raise _PrefixError(text, "prefix length out of range")
    return CIDR(address, int(bits))


class _PrefixError(Exception):
    def __init__(self, text: str, message: str) -> None:
        super().__init__(f"netip.ParsePrefix({go_quote(text)}): {message}")


def _cidr(text: str) -> CIDR:
    prefix = "network address parse error during conversion from string: "
    try:
        network = _prefix(text)
    except _PrefixError as error:
        raise CelError(f"{prefix}{prefix}{error}") from None
    if _is_mapped(network.address):
        raise CelError(f"{prefix}IPv4-mapped IPv6 address {go_quote(text)} is not allowed")
    return network


def _parses(parse: Callable[[str], Value]) -> Callable[[str], bool]:
    def call(text: str) -> bool:
        try:
            parse(text)
        except CelError:
            return False
        return True

    return call


def _text(address: Address) -> str:
    return str(address)


def _contains_ip(network: CIDR, ip: IP | str) -> bool:
    if isinstance(ip, str) and not _parses(_ip)(ip):
        raise CelError(
            "no such overload"
        )  # upstream takes the failed conversion for an argument of a wrong type
    address = (ip if isinstance(ip, IP) else _ip(ip)).address
    return _is_inside(CIDR(address, address.max_prefixlen), network)


def _contains_cidr(network: CIDR, other: CIDR | str) -> bool:
    other = other if isinstance(other, CIDR) else _cidr(other)
    return network.bits <= other.bits and _is_inside(other, network)


def _is_inside(inner: CIDR, outer: CIDR) -> bool:
    if inner.address.version != outer.address.version:
        return False
    return CIDR(inner.address, outer.bits).masked == outer.masked


def _masked(network: CIDR) -> CIDR:
    return CIDR(type(network.address)(network.masked), network.bits)


def _is_global_unicast(ip: IP) -> bool:
    address = ip.address
    if address.version == 4 and int(address) == 2**32 - 1:
        return False
    return not (
        address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    )


def _is_link_local_multicast(ip: IP) -> bool:
    shift, expected = (8, 0xE00000) if ip.address.version == 4 else (112, 0xFF02)
    return int(ip.address) >> shift == expected


OVERLOADS: Final = [
    *function("ip", "(string) -> ip", _ip, steps=SLOW, per_item=6),
    *function("ip", "cidr.() -> ip", lambda network: IP(network.address)),
    *function("isIP", "(string) -> bool", _parses(_ip), steps=SLOW, per_item=6),
    *function("ip.isCanonical", "(string) -> bool", lambda text: _text(_ip(text).address) == text,
        steps=SLOW, per_item=6),
    *function("family", "ip.() -> int", lambda ip: ip.address.version),
    *function("isUnspecified", "ip.() -> bool", lambda ip: ip.address.is_unspecified),
    *function("isLoopback", "ip.() -> bool", lambda ip: ip.address.is_loopback),
    *function("isLinkLocalMulticast", "ip.() -> bool", _is_link_local_multicast),
    *function("isLinkLocalUnicast", "ip.() -> bool", lambda ip: ip.address.is_link_local),
    *function("isGlobalUnicast", "ip.() -> bool", _is_global_unicast),
    *function("string", "(ip) -> string", lambda ip: _text(ip.address), steps=12),
    *function("cidr", "(string) -> cidr", _cidr, steps=SLOW, per_item=6),
    *function("isCIDR", "(string) -> bool", _parses(_cidr), steps=SLOW, per_item=6),
    *function("containsIP", "cidr.(string) -> bool; cidr.(ip) -> bool", _contains_ip, steps=SLOW),
    *function("containsCIDR", "cidr.(string) -> bool; cidr.(cidr) -> bool", _contains_cidr, steps=SLOW),
    *function("prefixLength", "cidr.() -> int", lambda network: network.bits),
    *function("masked", "cidr.() -> cidr", _masked, steps=SLOW),
    *function("string", "(cidr) -> string", lambda network: f"{_text(network.address)}/{network.bits}", steps=12),
]  # fmt: skip
