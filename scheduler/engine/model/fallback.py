"""
Required rules that may become preferences, by annotation.

`affinity-scheduler.io/fallback` holds a JSON list (its fields: manifests/examples/README.md). Each entry names required
terms of the pod, those of its affinity annotation included, and when they count as preferred. Node affinity can be
relaxed in the affinity annotation alone: the kubelet checks the spec's again.

A pod is bound with the relaxed entries in `affinity-scheduler.io/relaxed`, and its terms then count as preferred for
all others too. A required anti-affinity term that has an entry *yields* to pods that have relaxed an equal term:
otherwise two replicas of one workload, which declare the same term against each other, would still keep apart.

Source: lifecycle/predicate.go, generalFilter, and scheduler.go, AdmissionCheck (kubernetes 1.36).

Parsing is strict. A pod with a problem is not scheduled; on a running pod the annotation counts as absent.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from scheduler.engine.model.annotation_json import decoded, problem
from scheduler.engine.model.terms import (
    AffinityTerm,
    DomainLimit,
    PodAffinity,
    PreferredNodeTerm,
    Problem,
    RequiredNodeAffinity,
    Shares,
    SpreadConstraint,
    TermList,
    usable,
)
from scheduler.engine.syntax.selectors import Requirement, Selector

if TYPE_CHECKING:
    from scheduler.engine.model.pods import PodSpec

FALLBACK: Final = "affinity-scheduler.io/fallback"
#: Written with the bind: the entries that were relaxed, and why.
RELAXED: Final = "affinity-scheduler.io/relaxed"

FallbackKind = Literal["podAffinity", "podAntiAffinity", "nodeAffinity", "topologySpreadConstraints"]

LIMIT_CHARACTERS: Final = 16 * 1024
#: A pod that fits nowhere is tried twice per entry at most.
_LIMIT_ENTRIES: Final = 8
_LIMIT_LABELS: Final = 16
_LIMIT_SECONDS: Final = 999_999


class _Entry(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    rule: FallbackKind
    topology_key: str = ""
    match_labels: dict[str, str] = {}
    after_seconds: int | None = None
    #: No longer supported; read so that the refusal can name `afterSeconds`.
    after_not_trigger_scale_up: bool = False
    weight: int | None = None


class RelaxedRule(msgspec.Struct, frozen=True):
    """An item of the annotation `RELAXED`: the name of the relaxed entry, and why it was relaxed."""

    rule: str
    why: str = ""


_ENTRIES: Final = msgspec.json.Decoder(tuple[_Entry, ...])
_MARK: Final = msgspec.json.Decoder(tuple[RelaxedRule, ...])


@dataclass(frozen=True, slots=True)
class Fallback:
    """One entry."""

    kind: FallbackKind
    topology_key: str
    labels: tuple[tuple[str, str], ...]
    after_s: int
    weight: int

    @property
    def name(self) -> str:
        """The entry's name in messages, the mark and the condition: its rule, key and labels."""
        key = f" by {self.topology_key}" if self.topology_key else ""
        labels = ",".join(f"{key}={value}" for key, value in self.labels)
        return f"{self.kind}{key}{f' of {labels}' if labels else ''}"

    @property
    def softened(self) -> str:
        """The preference that replaces the rule once it is relaxed."""
        if self.kind == "topologySpreadConstraints":
            return "ScheduleAnyway"
        return f"preferred with weight {self.weight}"

    @property
    def text(self) -> str:
        """The rest of a sentence: what the rule counts as once it is relaxed, and when that happens."""
        return f"{self.name} counts as {self.softened}, after {self.after_s} s"

    def names(self, term: AffinityTerm | SpreadConstraint) -> bool:
        """Return whether the entry is about the term, which stands in the entry's rule."""
        selector = term.selector
        if term.topology_key != self.topology_key or not isinstance(selector, Selector):
            return False
        return all(Requirement(key, "In", (value,)) in selector.requirements for key, value in self.labels)


def parse_fallbacks(annotations: Mapping[str, str]) -> tuple[Fallback, ...] | Problem:
    """Return the entries of the annotation; none without it."""
    text = annotations.get(FALLBACK)
    if text is None:
        return ()
    if len(text) > LIMIT_CHARACTERS:
        return problem(FALLBACK, f"$: more than {LIMIT_CHARACTERS} characters")
    raw = decoded(FALLBACK, _ENTRIES.decode, text)
    if isinstance(raw, Problem):
        return raw
    if len(raw) > _LIMIT_ENTRIES:
        return problem(FALLBACK, f"$: more than {_LIMIT_ENTRIES} entries")
    by_name: dict[str, Fallback] = {}
    for index, entry in enumerate(raw):
        if (fault := _fault(entry)) is not None:
            return problem(FALLBACK, f"$[{index}]{fault}")
        fallback = _fallback(entry)
        if by_name.setdefault(fallback.name, fallback) is not fallback:
            return problem(FALLBACK, f"$[{index}]: {fallback.name} is named twice")
    return tuple(by_name.values())


def _fault(entry: _Entry) -> str | None:
    """Return a path below the entry, and what is wrong there; None if the entry is valid by itself."""
    is_of_nodes = entry.rule == "nodeAffinity"
    if is_of_nodes and (entry.topology_key or entry.match_labels):
        return ": nodeAffinity takes neither topologyKey nor matchLabels"
    if not is_of_nodes and not entry.topology_key:
        return ".topologyKey: required, the key of the terms"
    if entry.weight is not None and entry.rule == "topologySpreadConstraints":
        return ".weight: a spread constraint becomes ScheduleAnyway, which has no weight"
    if entry.weight is not None and not 1 <= entry.weight <= 100:
        return f".weight: found {entry.weight}, expected 1 to 100"
    if entry.after_not_trigger_scale_up:
        return ".afterNotTriggerScaleUp: no longer read, expected afterSeconds alone"
    if entry.after_seconds is None:
        return ": expected afterSeconds"
    if not 0 <= entry.after_seconds <= _LIMIT_SECONDS:
        return f".afterSeconds: found {entry.after_seconds}, expected 0 to {_LIMIT_SECONDS}"
    if len(entry.match_labels) > _LIMIT_LABELS:
        return f".matchLabels: more than {_LIMIT_LABELS} labels"
    return None


def _fallback(entry: _Entry) -> Fallback:
    return Fallback(
        kind=entry.rule,
        topology_key=entry.topology_key,
        labels=tuple(sorted(entry.match_labels.items())),
        after_s=entry.after_seconds or 0,
        weight=100 if entry.weight is None else entry.weight,
    )


def yielding(
    spec: PodSpec, fallbacks: tuple[Fallback, ...], *, spec_requires_nodes: bool
) -> PodSpec | Problem:
    """
    Return the spec in which each anti-affinity term with an entry is marked; a Problem if an entry names no term.

    `spec_requires_nodes`: whether its own JSON has required node affinity, which no entry can relax: the kubelet
    would refuse the pod.
    """
    for index, entry in enumerate(fallbacks):
        if entry.kind == "nodeAffinity" and spec_requires_nodes:
            return problem(
                FALLBACK,
                f"$[{index}]: nodeAffinity in the spec is checked again by the kubelet; "
                "declare it in the affinity annotation alone",
            )
        if not _is_about_any(entry, spec):
            return problem(FALLBACK, f"$[{index}]: the pod has no required term of {entry.name}")
    anti = spec.affinity.required_anti
    if isinstance(anti, Problem):
        return spec
    of_anti = [entry for entry in fallbacks if entry.kind == "podAntiAffinity"]
    marked = tuple(replace(term, yields=any(entry.names(term) for entry in of_anti)) for term in anti)
    return replace(spec, affinity=replace(spec.affinity, required_anti=marked))


def _is_about_any(entry: Fallback, spec: PodSpec) -> bool:
    match entry.kind:
        case "nodeAffinity":
            return spec.required_node_affinity.terms is not None
        case "topologySpreadConstraints":
            return any(constraint.hard and entry.names(constraint) for constraint in spec.spread)
        case "podAffinity":
            terms = spec.affinity.required
        case "podAntiAffinity":
            terms = spec.affinity.required_anti
    # A list that does not parse is refused with a message of its own.
    return isinstance(terms, Problem) or any(map(entry.names, terms))


def relaxed_spec(spec: PodSpec, entries: Collection[Fallback]) -> PodSpec:
    """Return a copy of the spec, in which the terms that these entries name count as preferred. O(terms)."""
    by_kind = {
        kind: [entry for entry in entries if entry.kind == kind] for kind in {entry.kind for entry in entries}
    }
    affinity = spec.affinity
    required, near = _split(affinity.required, by_kind.get("podAffinity", ()))
    required_anti, apart = _split(affinity.required_anti, by_kind.get("podAntiAffinity", ()))
    of_spread = by_kind.get("topologySpreadConstraints", ())
    spread = tuple(
        replace(constraint, hard=False)
        if constraint.hard and any(entry.names(constraint) for entry in of_spread)
        else constraint
        for constraint in spec.spread
    )
    nodes, preferred_nodes = spec.required_node_affinity, spec.preferred_nodes
    for entry in by_kind.get("nodeAffinity", ()):
        # A term that does not parse matches no node; among the preferences it would fail every decision.
        parsed = (term for term in nodes.terms or () if term.problem is None)
        wanted = tuple(PreferredNodeTerm(entry.weight, term) for term in parsed)
        preferred_nodes = (*(preferred_nodes or ()), *wanted)
        nodes = RequiredNodeAffinity(nodes.node_selector, None)
    softened = PodAffinity(
        required=required,
        required_anti=required_anti,
        preferred=_appended(affinity.preferred, near),
        preferred_anti=_appended(affinity.preferred_anti, apart),
    )
    return replace(
        spec,
        affinity=softened,
        spread=spread,
        required_node_affinity=nodes,
        preferred_nodes=preferred_nodes,
        relaxed=tuple(entries),
        relaxed_anti=tuple(term for term, _ in apart),
        unrelaxed=spec,
    )


def _split(terms: TermList, entries: Iterable[Fallback]) -> tuple[TermList, list[tuple[AffinityTerm, int]]]:
    """Return the terms that no entry names, and each other term with the weight of the first entry that names it."""
    kept, relaxed = [], []
    for term in usable(terms):
        weight = next((entry.weight for entry in entries if entry.names(term)), None)
        if weight is None:
            kept.append(term)
        else:
            relaxed.append((term, weight))
    return terms if isinstance(terms, Problem) else tuple(kept), relaxed


def _appended(preferred: TermList, relaxed: Iterable[tuple[AffinityTerm, int]]) -> TermList:
    added = tuple(
        replace(term, weight=weight, max_pods=_preferred_limit(term.max_pods), enforced=False, yields=False)
        for term, weight in relaxed
    )
    return preferred if isinstance(preferred, Problem) else (*preferred, *added)


def _preferred_limit(limit: DomainLimit) -> DomainLimit:
    """Return the limit as a preference has it: weights stay; any other limit becomes 1, so that each pod counts."""
    return limit if isinstance(limit, Shares) and limit.weights else 1


def mark(relaxed: Iterable[RelaxedRule]) -> str:
    """Return the value of the mark."""
    return msgspec.json.encode(list(relaxed)).decode()


def read_mark(annotations: Mapping[str, str]) -> tuple[RelaxedRule, ...]:
    """Return the relaxed entries that the annotations name; none if the mark is absent or malformed."""
    text = annotations.get(RELAXED)
    if text is None or len(text) > LIMIT_CHARACTERS:
        return ()
    try:
        return _MARK.decode(text)[:_LIMIT_ENTRIES]
    except (msgspec.DecodeError, UnicodeError):
        return ()
