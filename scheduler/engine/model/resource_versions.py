"""The order of the versions of an object."""

from __future__ import annotations


def is_older(version: str, than: str) -> bool:
    """
    Return whether a resourceVersion is older than another; neither is if one of them is a text that is no number.

    They are numbers without a limit since Kubernetes 1.35 (KEP-5504). An object of a file may have none, which is older
    than any version that is written after it.
    """
    if not all(each == "" or (each.isascii() and each.isdigit()) for each in (version, than)):
        return False
    return (len(version), version) < (len(than), than)
