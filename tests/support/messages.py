"""The message of a pod that fits nowhere, in its two parts."""

_PREEMPTION = " preemption: "
#: What DynamicResources says before, of a pod without claims.
NO_CLAIMS = "no new claims to deallocate, "


def refusals(message: str) -> str:
    """Return the part on the nodes, without the parts of PostFilter."""
    return message.replace(NO_CLAIMS, "").partition(_PREEMPTION)[0]


def not_helpful(n_nodes: int) -> str:
    """Return the part on preemption if no node would take the pod, whichever pods left."""
    return _none(n_nodes, "Preemption is not helpful for scheduling")


def no_victims(n_nodes: int) -> str:
    """Return the part on preemption if no pod has a lower priority."""
    return _none(n_nodes, "No preemption victims found for incoming pod")


def _none(n_nodes: int, why: str) -> str:
    return f"{NO_CLAIMS}preemption: 0/{n_nodes} nodes are available: {n_nodes} {why}."
