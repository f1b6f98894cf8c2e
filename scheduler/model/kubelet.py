"""What a kubelet says of a pod that it does not let in."""

from __future__ import annotations

import re
from typing import Final

from scheduler.model import wire

#: With what kubelets refuse a pod besides OutOf<resource>, where their message does not say so.
_REASONS: Final = frozenset({"NodeAffinity", "NodePorts", "UnexpectedAdmissionError"})
#: The resource's name may be part of a reason. It ends up in events and conditions.
_FORM: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_./]{0,127}")


def refusal_reason(status: wire.PodStatus) -> str:
    """
    Why the kubelet refused the pod, such as OutOfcpu; empty where it did not.

    Source: kubelet.go, rejectPod; lifecycle/predicate.go, InsufficientResourcePrefix (kubernetes 1.36).
    """
    reason = status.reason or ""
    if status.phase != "Failed" or not _FORM.fullmatch(reason):
        return ""
    refused = reason.startswith("OutOf") or reason in _REASONS
    return reason if refused or (status.message or "").startswith("Pod was rejected: ") else ""
