"""The five lists of a pod's spec to which kep-3633-alt adds, and how key lists are merged in each."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from scheduler.engine.syntax.affinity_rules import constraint_errors, term_errors, weighted_term_errors
from scheduler.engine.syntax.field_errors import FieldError
from scheduler.engine.syntax.json_fields import list_field, object_field
from scheduler.engine.syntax.match_label_keys import merged_affinity, merged_spread
from scheduler.tools.webhook.refusals import Json
from scheduler.tools.webhook.reviews import ReviewedPod
from scheduler.tools.webhook.term_json import Constraint, Term, TermType, WeightedTerm

Labels = Mapping[str, str]

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
KEY_LISTS: Final = ("matchLabelKeys", "mismatchLabelKeys")
_SPREAD: Final = "topologySpreadConstraints"


@dataclass(frozen=True, slots=True)
class TermList:
    """
    One list of a pod's spec or of its affinity annotation.

    `side` and `kind` are its path in the affinity at `root`; `side` is empty for spread constraints.
    """

    side: str
    kind: str
    term_type: TermType
    root: str = "spec.affinity"

    @property
    def name(self) -> str:
        """The list's name in annotations of kep-3633-alt."""
        return f"{self.side}.{self.kind}" if self.side else self.kind

    @property
    def annotation(self) -> str:
        """The annotation whose items are added to this list."""
        return f"kep-3633-alt.10h.in/{self.name}"

    @property
    def path(self) -> str:
        """The list's path in the pod."""
        return f"{self.root}.{self.name}" if self.side else f"spec.{self.kind}"

    def of(self, pod: ReviewedPod) -> list[object]:
        """Return the pod's items in this list."""
        return list(
            list_field(object_field(pod.affinity, self.side), self.kind)
            if self.side
            else pod.constraints or ()
        )

    def put(self, affinity: Json, items: Sequence[object]) -> Json:
        """Return the affinity with these items in this list; not for spread constraints."""
        return {**affinity, self.side: {**object_field(affinity, self.side), self.kind: list(items)}}

    def merged(self, items: Sequence[object], labels: Labels) -> list[object]:
        """Return the items with label values merged into their selectors and with their key lists. O(items x keys)."""
        if not self.side:
            return [merged_spread(item, labels) if isinstance(item, Mapping) else item for item in items]
        # Enforced terms, which only the annotation has, are as required ones.
        kind = PREFERRED if self.kind == PREFERRED else REQUIRED
        affinity = merged_affinity({self.side: {kind: list(items)}}, labels)
        return list(list_field(object_field(affinity, self.side), kind))

    def keys(self, item: object) -> list[str]:
        """Return the label keys in the item's key lists."""
        term = self._term(item)
        return [key for name in KEY_LISTS for key in list_field(term, name) if isinstance(key, str)]

    def without_keys(self, item: object, found_in: Labels | None = None) -> object:
        """Return the item without its key lists, or without the listed keys that `found_in` has."""
        return self.with_term(item, partial(_without_keys, found_in=found_in))

    def with_term(self, item: object, change: Callable[[Mapping[str, object]], Json]) -> object:
        """Return the item with its term changed."""
        if not isinstance(item, Mapping):
            return item
        if self.kind == PREFERRED:
            return {**item, "podAffinityTerm": change(object_field(item, "podAffinityTerm"))}
        return change(item)

    def errors(self, items: Sequence[object], checked: Collection[int]) -> Iterator[FieldError]:
        """Yield the errors of the merged items at the indices `checked`."""
        objects = [item if isinstance(item, Mapping) else {} for item in items]
        if not self.side:
            yield from constraint_errors(objects, self.path, checked)
            return
        rules = weighted_term_errors if self.kind == PREFERRED else term_errors
        for index in sorted(checked):
            yield from rules(objects[index], f"{self.path}[{index}]")

    def _term(self, item: object) -> object:
        return object_field(item, "podAffinityTerm") if self.kind == PREFERRED else item


#: In the order in which the API server validates them.
TERM_LISTS: Final = (
    *(
        TermList(side, kind, Term if kind == REQUIRED else WeightedTerm)
        for side in ("podAffinity", "podAntiAffinity")
        for kind in (REQUIRED, PREFERRED)
    ),
    TermList("", _SPREAD, Constraint),
)


def _without_keys(term: Mapping[str, object], found_in: Labels | None) -> Json:
    left: Json = {}
    for name, value in term.items():
        if name in KEY_LISTS:
            known = () if found_in is None else list_field(term, name)
            value = [key for key in known if not isinstance(key, str) or key not in (found_in or ())]
            if not value:
                continue
        left[name] = value
    return left
