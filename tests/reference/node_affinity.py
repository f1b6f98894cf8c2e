"""
NodeAffinity: nodeSelector and node affinity of the pod, and those that the profile adds.

Source: plugins/nodeaffinity/node_affinity.go (kubernetes 1.36).
"""

from tests.reference.arithmetic import normalised
from tests.reference.node_selection import (
    TermError,
    any_term_matches,
    check,
    pod_accepts,
    required_of,
    term_matches,
)
from tests.reference.question import UNRESOLVABLE, CycleError, Object, Question, Verdict

NAME = "NodeAffinity"


def prefilter(question: Question) -> Verdict | frozenset[str] | None:
    """
    Return the only node names possible, where every required term lists some; a refusal where none is left.

    Within a term the lists of several `metadata.name In` fields intersect; over terms they unite.
    """
    required = required_of(question.spec)
    terms = (required or {}).get("nodeSelectorTerms") or []
    named: set[str] = set()
    for term in terms:
        lists = [
            set(field.get("values") or [])
            for field in term.get("matchFields") or []
            if field["key"] == "metadata.name" and field["operator"] == "In"
        ]
        if not lists:
            return None
        named |= set.intersection(*lists)
    if not terms:
        return None
    return frozenset(named) if named else Verdict(UNRESOLVABLE, ("pod affinity terms conflict",))


def refusals(question: Question) -> dict[str, Verdict]:
    """Return nodes outside the profile's added affinity, then nodes outside the pod's own."""
    added = _added(question).get("requiredDuringSchedulingIgnoredDuringExecution")
    refused = {}
    for name, node in question.nodes.items():
        if added is not None and not any_term_matches(added, node):
            reason = "node(s) didn't match scheduler-enforced node affinity"
            refused[name] = Verdict(UNRESOLVABLE, (reason,))
        elif not pod_accepts(question.pod, node):
            refused[name] = Verdict(UNRESOLVABLE, ("node(s) didn't match Pod's node affinity/selector",))
    return refused


def scores(question: Question, feasible: list[str]) -> dict[str, int] | None:
    """
    Return the sum of the weights of the preferred terms that match; skipped without preferred terms.

    Raises: CycleError where a preferred term that counts does not parse.
    """
    own = ((question.spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_PREFERRED)
    added = _added(question).get(_PREFERRED) or []
    if own is None and not added:
        return None
    usable = [
        term for term in [*(own or []), *added] if term["weight"] != 0 and _non_empty(term["preference"])
    ]
    for term in usable:
        try:
            check(term["preference"])
        except TermError as error:
            raise CycleError(f'running PreScore plugin "{NAME}": {error}') from error
    raw = {
        name: sum(term["weight"] for term in usable if term_matches(term["preference"], question.nodes[name]))
        for name in feasible
    }
    return normalised(raw, reverse=False)


_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _added(question: Question) -> Object:
    return question.args.get(NAME, {}).get("addedAffinity") or {}


def _non_empty(preference: Object) -> bool:
    return bool(preference.get("matchExpressions") or preference.get("matchFields"))
