"""The reasons with which kubelets reject a pod at admission."""

from __future__ import annotations

import re
from typing import Final

from scheduler.engine.model import pod_wire

#: Reasons of rejection other than OutOf<resource>, for messages that do not say that the pod was rejected.
_REASONS: Final = frozenset({"NodeAffinity", "NodePorts", "UnexpectedAdmissionError"})
#: A reason may contain the name of a resource. It is copied into events and conditions, so its form is checked.
_FORM: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_./]{0,127}")


def rejection_reason(status: pod_wire.PodStatus) -> str:
    """
    Return why the kubelet rejected the pod, such as OutOfcpu; empty if the kubelet did not reject it.

    Source: kubelet.go, rejectPod; lifecycle/predicate.go, InsufficientResourcePrefix (kubernetes 1.36).
    """
    reason = status.reason or ""
    if status.phase != "Failed" or not _FORM.fullmatch(reason):
        return ""
    is_rejection = reason.startswith("OutOf") or reason in _REASONS
    return reason if is_rejection or (status.message or "").startswith("Pod was rejected: ") else ""
