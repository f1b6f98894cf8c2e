"""
NodePorts: two pods on one node cannot listen on the same host port.

Source: plugins/nodeports/node_ports.go and framework/types.go, HostPortInfo (kubernetes 1.36).
"""

from typing import NamedTuple

from tests.reference.question import UNSCHEDULABLE, Object, Question, Verdict

NAME = "NodePorts"

_ANY_IP = "0.0.0.0"


class HostPort(NamedTuple):
    """One port of the host."""

    ip: str
    protocol: str
    port: int


def host_ports(pod: Object) -> list[HostPort]:
    """Return host ports of app containers and of init containers that keep running."""
    spec = pod.get("spec") or {}
    sidecars = [c for c in spec.get("initContainers") or [] if c.get("restartPolicy") == "Always"]
    return [
        HostPort(port.get("hostIP") or _ANY_IP, port.get("protocol") or "TCP", port["hostPort"])
        for container in [*sidecars, *(spec.get("containers") or [])]
        for port in container.get("ports") or []
        if (port.get("hostPort") or 0) > 0
    ]


def conflict(wanted: HostPort, used: HostPort) -> bool:
    """Return whether two host ports conflict: same protocol and port, on the same address or one on all addresses."""
    if (wanted.protocol, wanted.port) != (used.protocol, used.port):
        return False
    return wanted.ip == used.ip or _ANY_IP in (wanted.ip, used.ip)


def refusals(question: Question) -> dict[str, Verdict]:
    """Return nodes where a pod holds a port that conflicts with a wanted one."""
    refused = {}
    for name in question.nodes:
        used = [port for pod in question.pods_on[name] for port in host_ports(pod)]
        if any(conflict(wanted, held) for wanted in host_ports(question.pod) for held in used):
            reason = "node(s) didn't have free ports for the requested pod ports"
            refused[name] = Verdict(UNSCHEDULABLE, (reason,))
    return refused
