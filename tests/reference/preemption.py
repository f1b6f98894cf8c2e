"""
Which pods of lower priority would make room for a pod, found by asking all plugins again without them.

Left out: nominated pods, and the pods that spread constraints count only while they leave in thought: ones that end
already, and ones that an empty selector selects.

Source: plugins/defaultpreemption/default_preemption.go and framework/preemption/preemption.go (kubernetes 1.36).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tests.reference.question import UNSCHEDULABLE, Object, Question, Verdict, labels_of, namespace_of
from tests.reference.selectors import SelectorError, parse

#: The first plugin that refuses the node, or None; asked with the cluster as it would be.
Refusal = Callable[[Question, str], Verdict | None]


class Candidate(NamedTuple):
    """A node, and the pods that would leave it, the most important first."""

    node: str
    victims: list[Object]
    n_violations: int


def preemption(
    question: Question, refusals: dict[str, Verdict], budgets: Sequence[Object], refusal: Refusal
) -> tuple[dict[str, Any], str]:
    """
    Return what preemption finds on every node, in the shape of a record, and its part of the message.

    `refusals`: why each node refuses the pod.
    """
    reason = _ineligible(question, refusals)
    if reason:
        return {"eligible": False, "candidates": {}, "winners": []}, f"preemption: {reason}"
    found: list[Candidate] = []
    reasons: Counter[str] = Counter()
    for node in question.nodes:
        if node not in refusals or refusals[node].code != UNSCHEDULABLE:
            reasons["Preemption is not helpful for scheduling"] += 1
            continue
        answer = on_node(question, node, budgets, refusal)
        if isinstance(answer, Candidate):
            found.append(answer)
        else:
            reasons.update(answer.reasons)
    listed = {
        one.node: {"victims": sorted(map(key_of, one.victims)), "pdbViolations": one.n_violations}
        for one in found
    }
    best = min(map(harm, found), default=None)
    decision = {
        "eligible": True,
        "candidates": listed,
        "winners": [one.node for one in found if harm(one) == best],
    }
    entries = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    text = f"preemption: 0/{len(question.nodes)} nodes are available: {entries}."
    return decision, "" if found else text


def on_node(
    question: Question, node: str, budgets: Sequence[Object], refusal: Refusal
) -> Candidate | Verdict:
    """Return the pods that would be evicted from the node, or why that would not help."""
    lower = lower_pods(question, node)
    if not lower:
        return Verdict("", ("No preemption victims found for incoming pod",))
    trial = Trial(question, node, refusal)
    for pod in lower:
        trial.take_away(pod)
    if (refused := trial.refusal()) is not None:
        return refused
    violating, others = by_violation(lower, budgets)
    victims: list[Object] = []
    for pod in [*violating, *others]:
        trial.bring_back(pod)
        if trial.refusal() is not None:
            trial.take_away(pod)
            victims.append(pod)
    n_violations = sum(pod in violating for pod in victims)
    return Candidate(node, sorted(victims, key=importance), n_violations)


class Trial:
    """
    A node that pods leave and come back to.

    Kubernetes has a node's host ports in a set: of two pods that hold the same one, the first to go frees it.
    """

    def __init__(self, question: Question, node: str, refusal: Refusal) -> None:
        self._question = question
        self._node = node
        self._refusal = refusal
        self._left = list(question.pods_on[node])
        self._gone: list[Object] = []
        self._held = {_port(port) for pod in self._left for port in _ports(pod)}

    def take_away(self, pod: Object) -> None:
        """Remove the pod from the node."""
        self._left.remove(pod)
        self._gone.append(pod)
        self._held -= set(map(_port, _ports(pod)))

    def bring_back(self, pod: Object) -> None:
        """Put the pod back on the node."""
        self._left.append(pod)
        self._gone.remove(pod)
        self._held |= set(map(_port, _ports(pod)))

    def refusal(self) -> Verdict | None:
        """Return why the node refuses the pod now; None if it does not."""
        left = [self._as_held(pod) for pod in self._left]
        pods_on = {**self._question.pods_on, self._node: left}
        return self._refusal(replace(self._question, pods_on=pods_on, gone=self._gone), self._node)

    def _as_held(self, pod: Object) -> Object:
        """Return the pod with the ports that it still holds."""
        if not _ports(pod):
            return pod
        spec = dict(pod["spec"])
        for field in ("containers", "initContainers"):
            spec[field] = [
                {**one, "ports": [port for port in one.get("ports") or [] if _port(port) in self._held]}
                for one in spec.get(field) or []
            ]
        return {**pod, "spec": spec}


def lower_pods(question: Question, node: str) -> list[Object]:
    """Return the node's pods of lower priority, the most important first; equally important ones by name, backwards."""
    lower = [pod for pod in question.pods_on[node] if priority(pod) < priority(question.pod)]
    return sorted(sorted(lower, key=key_of, reverse=True), key=importance)


def by_violation(pods: Sequence[Object], budgets: Sequence[Object]) -> tuple[list[Object], list[Object]]:
    """Return the pods whose removal, one after the other, breaks a budget, and the others."""
    allowed = {id(budget): (budget.get("status") or {}).get("disruptionsAllowed") or 0 for budget in budgets}
    violating: list[Object] = []
    others: list[Object] = []
    for pod in pods:
        broken = False
        for budget in budgets:
            if _protects(budget, pod):
                allowed[id(budget)] -= 1
                broken |= allowed[id(budget)] < 0
        (violating if broken else others).append(pod)
    return violating, others


def harm(candidate: Candidate) -> tuple[int, int, int, int, list[int]]:
    """Return the key by which candidates are compared, least first; victims that started latest are the least harm."""
    priorities = [priority(pod) for pod in candidate.victims]
    top = [_started(pod) for pod in candidate.victims if priority(pod) == priorities[0]]
    latest = [-ord(one) for one in min(top)]
    total = sum(one + 2**31 for one in priorities)
    return candidate.n_violations, priorities[0], total, len(priorities), latest


def importance(pod: Object) -> tuple[int, str]:
    """Return the sort key that puts a higher priority first, then the pod that started earlier."""
    return -priority(pod), _started(pod)


def priority(pod: Object) -> int:
    """Return `spec.priority`, 0 where absent."""
    return pod["spec"].get("priority") or 0


def key_of(pod: Object) -> str:
    return f"{namespace_of(pod)}/{pod['metadata']['name']}"


def _ports(pod: Object) -> list[Object]:
    spec = pod["spec"]
    holding = [one for one in spec.get("initContainers") or [] if one.get("restartPolicy") == "Always"]
    return [port for one in [*(spec.get("containers") or []), *holding] for port in one.get("ports") or []]


def _port(port: Object) -> tuple[str, str, int]:
    return port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port.get("hostPort") or 0


def _started(pod: Object) -> str:
    return (pod.get("status") or {}).get("startTime") or "now"


def _ineligible(question: Question, refusals: dict[str, Verdict]) -> str:
    if question.spec.get("preemptionPolicy") == "Never":
        return "not eligible due to preemptionPolicy=Never."
    node = (question.pod.get("status") or {}).get("nominatedNodeName") or ""
    if node in refusals and refusals[node].code == UNSCHEDULABLE:
        ending = (pod for pod in question.pods_on[node] if _is_preempted(pod))
        if any(priority(pod) < priority(question.pod) for pod in ending):
            return "not eligible due to a terminating pod on the nominated node."
    return ""


def _is_preempted(pod: Object) -> bool:
    wanted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    conditions = (pod.get("status") or {}).get("conditions") or []
    return "deletionTimestamp" in pod["metadata"] and any(wanted.items() <= one.items() for one in conditions)


def _protects(budget: Object, pod: Object) -> bool:
    try:
        selector = parse(budget["spec"].get("selector"))
    except SelectorError:
        return False
    disrupted = (budget.get("status") or {}).get("disruptedPods") or {}
    return (
        namespace_of(budget) == namespace_of(pod)
        and not selector.everything
        and bool(labels_of(pod))
        and selector.matches(labels_of(pod))
        and pod["metadata"]["name"] not in disrupted
    )
