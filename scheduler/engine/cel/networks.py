"""
IP addresses and networks, as in cidr("10.0.0.0/8").containsIP("10.1.2.3").

A text is parsed as Go does it, since its messages are shown; what is asked of an address Python's ipaddress knows.
Source: apiserver/pkg/cel/library/{ip,cidr}.go (kubernetes 1.36), Go's net/netip.
"""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_network
from typing import Final

from scheduler.engine.cel.functions import SLOW, function, succeeds
from scheduler.engine.cel.values import CelError, go_quote, register_type

Address = IPv4Address | IPv6Address

_GROUP: Final = re.compile(r"[0-9a-fA-F]*")
_BITS: Final = re.compile("[0-9]|[1-9][0-9]{1,17}")
_CIDR_FAULT: Final = "network address parse error during conversion from string: "


@dataclass(frozen=True, slots=True)
class IP:
    """An address."""

    address: Address


@dataclass(frozen=True, slots=True)
class CIDR:
    """A network as written: bits after the mask are kept."""

    address: Address
    bits: int

    def has(self, address: Address) -> bool:
        """Return whether an address is in the network."""
        return address in ip_network((self.address, self.bits), strict=False)


register_type(IP, "net.IP")
register_type(CIDR, "net.CIDR")


def _fault(text: str, message: str, at: str = "") -> CelError:
    """Return the error of netip.ParseAddr."""
    return CelError(f"ParseAddr({go_quote(text)}): {message}" + (f" (at {go_quote(at)})" if at else ""))


def _parse_ipv4(text: str, whole: str) -> bytes:
    fields: list[int] = []
    digits = ""
    for index, character in enumerate(text):
        if character in "0123456789":
            if digits == "0":
                raise _fault(whole, "IPv4 field has octet with leading zero")
            digits += character
            if int(digits) > 255:
                raise _fault(whole, "IPv4 field has value >255")
        elif character == ".":
            if index in (0, len(text) - 1) or text[index - 1] == ".":
                raise _fault(whole, "IPv4 field must have at least one digit", text[index:])
            if len(fields) == 3:
                raise _fault(whole, "IPv4 address too long")
            fields.append(int(digits))
            digits = ""
        else:
            raise _fault(whole, "unexpected character", text[index:])
    if len(fields) < 3:
        raise _fault(whole, "IPv4 address too short")
    return bytes([*fields, int(digits or 0)])


def _parse_ipv6(text: str) -> tuple[bytes, str]:
    """Return the 16 bytes and the zone of an address."""
    rest, percent, zone = text.partition("%")
    if percent and not zone:
        raise _fault(text, "zone must be a non-empty string")
    parsed, ellipsis = b"", -1
    if rest.startswith("::"):
        ellipsis, rest = 0, rest[2:]
        if not rest:
            return bytes(16), zone
    while len(parsed) < 16:
        group = _GROUP.match(rest)[0]  # type: ignore[index]
        if len(group) > 4:
            raise _fault(text, "each group must have 4 or less digits", rest)
        if not group:
            raise _fault(text, "each colon-separated field must have at least one digit", rest)
        if rest[len(group) : len(group) + 1] == ".":
            if ellipsis < 0 and len(parsed) != 12:
                raise _fault(
                    text, "embedded IPv4 address must replace the final 2 fields of the address", rest
                )
            if len(parsed) > 12:
                raise _fault(
                    text, "too many hex fields to fit an embedded IPv4 at the end of the address", rest
                )
            parsed, rest = parsed + _parse_ipv4(rest, text), ""
            break
        parsed, rest = parsed + int(group, 16).to_bytes(2), rest[len(group) :]
        if not rest:
            break
        if rest[0] != ":":
            raise _fault(text, "unexpected character, want colon", rest)
        if len(rest) == 1:
            raise _fault(text, "colon must be followed by more characters", rest)
        rest = rest[1:]
        if rest[0] == ":":
            if ellipsis >= 0:
                raise _fault(text, "multiple :: in address", rest)
            ellipsis, rest = len(parsed), rest[1:]
            if not rest:
                break
    if rest:
        raise _fault(text, "trailing garbage after address", rest)
    if len(parsed) < 16 and ellipsis < 0:
        raise _fault(text, "address string too short")
    if len(parsed) == 16 and ellipsis >= 0:
        raise _fault(text, "the :: must expand to at least one field of zeros")
    return parsed[: max(ellipsis, 0)] + bytes(16 - len(parsed)) + parsed[max(ellipsis, 0) :], zone


def parse_address(text: str) -> tuple[Address, str]:
    """Return the address and its zone; raise CelError with the message of netip.ParseAddr if the text is none."""
    first = next((character for character in text if character in ".:%"), "")
    if first == ".":
        return IPv4Address(_parse_ipv4(text, text)), ""
    if first == ":":
        parsed, zone = _parse_ipv6(text)
        return IPv6Address(parsed), zone
    raise _fault(text, "missing IPv6 address" if first else "unable to parse IP")


def _is_mapped(address: Address) -> bool:
    return isinstance(address, IPv6Address) and address.ipv4_mapped is not None


def _ip(text: str) -> IP:
    try:
        address, zone = parse_address(text)
    except CelError as error:
        message = f"IP Address {go_quote(text)} parse error during conversion from string: {error}"
        raise CelError(message) from None
    if zone:
        raise CelError(f"IP address {go_quote(text)} with zone value is not allowed")
    if _is_mapped(address):
        raise CelError(f"IPv4-mapped IPv6 address {go_quote(text)} is not allowed")
    return IP(address)


def _cidr(text: str) -> CIDR:
    shown, slash, bits = text.rpartition("/")
    try:
        if not slash:
            raise CelError("no '/'")  # noqa: TRY301 - as the errors of the address
        address, zone = parse_address(shown)
    except CelError as error:
        fault = str(error)
    else:
        if zone:
            fault = "IPv6 zones cannot be present in a prefix"
        elif not _BITS.fullmatch(bits):
            fault = f"bad bits after slash: {go_quote(bits)}"
        elif int(bits) > address.max_prefixlen:
            fault = "prefix length out of range"
        elif _is_mapped(address):
            raise CelError(f"{_CIDR_FAULT}IPv4-mapped IPv6 address {go_quote(text)} is not allowed")
        else:
            return CIDR(address, int(bits))
    raise CelError(f"{_CIDR_FAULT}{_CIDR_FAULT}netip.ParsePrefix({go_quote(text)}): {fault}")


_is_ip: Final = succeeds(_ip)


def _contains_ip(network: CIDR, ip: IP | str) -> bool:
    if isinstance(ip, str) and not _is_ip(ip):
        # Upstream takes the failed conversion for an argument of a wrong type.
        raise CelError("no such overload")
    return network.has((ip if isinstance(ip, IP) else _ip(ip)).address)


def _contains_cidr(network: CIDR, other: CIDR | str) -> bool:
    other = other if isinstance(other, CIDR) else _cidr(other)
    return network.bits <= other.bits and network.has(other.address)


def _masked(network: CIDR) -> CIDR:
    return CIDR(ip_network((network.address, network.bits), strict=False).network_address, network.bits)


def _is_global_unicast(ip: IP) -> bool:
    address = ip.address
    is_local = address.is_unspecified or address.is_loopback or address.is_multicast or address.is_link_local
    return not is_local and address != IPv4Address(2**32 - 1)


def _is_link_local_multicast(ip: IP) -> bool:
    shift, expected = (8, 0xE00000) if ip.address.version == 4 else (112, 0xFF02)
    return int(ip.address) >> shift == expected


OVERLOADS: Final = [
    *function("ip", "(string) -> ip", _ip, steps=SLOW, per_item=6),
    *function("ip", "cidr.() -> ip", lambda network: IP(network.address)),
    *function("isIP", "(string) -> bool", _is_ip, steps=SLOW, per_item=6),
    *function("ip.isCanonical", "(string) -> bool", lambda text: str(_ip(text).address) == text,
        steps=SLOW, per_item=6),
    *function("family", "ip.() -> int", lambda ip: ip.address.version),
    *function("isUnspecified", "ip.() -> bool", lambda ip: ip.address.is_unspecified),
    *function("isLoopback", "ip.() -> bool", lambda ip: ip.address.is_loopback),
    *function("isLinkLocalMulticast", "ip.() -> bool", _is_link_local_multicast),
    *function("isLinkLocalUnicast", "ip.() -> bool", lambda ip: ip.address.is_link_local),
    *function("isGlobalUnicast", "ip.() -> bool", _is_global_unicast),
    *function("string", "(ip) -> string", lambda ip: str(ip.address), steps=12),
    *function("cidr", "(string) -> cidr", _cidr, steps=SLOW, per_item=6),
    *function("isCIDR", "(string) -> bool", succeeds(_cidr), steps=SLOW, per_item=6),
    *function("containsIP", "cidr.(string) -> bool; cidr.(ip) -> bool", _contains_ip, steps=3 * SLOW),
    *function("containsCIDR", "cidr.(string) -> bool; cidr.(cidr) -> bool", _contains_cidr, steps=3 * SLOW),
    *function("prefixLength", "cidr.() -> int", lambda network: network.bits),
    *function("masked", "cidr.() -> cidr", _masked, steps=SLOW),
    *function("string", "(cidr) -> string", lambda network: f"{network.address}/{network.bits}", steps=12),
]  # fmt: skip
