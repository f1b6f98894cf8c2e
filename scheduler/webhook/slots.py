"""The five lists of a pod's spec that kep-3633-alt adds to, and how key lists are merged in each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.model.match_label_keys import merged_affinity, merged_spread
from scheduler.syntax.affinity_rules import constraint_errors, term_errors, weighted_term_errors
from scheduler.syntax.field_errors import FieldError
from scheduler.syntax.json_fields import listed, mapped
from scheduler.webhook.refusals import Json
from scheduler.webhook.reviews import ReviewedPod
from scheduler.webhook.shapes import Constraint, Shape, Term, WeightedTerm

Labels = Mapping[str, str]

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
KEY_LISTS: Final = ("matchLabelKeys", "mismatchLabelKeys")
_SPREAD: Final = "topologySpreadConstraints"


@dataclass(frozen=True, slots=True)
class Slot:
    """One list: `side` and `kind` are its place in spec.affinity, `side` is empty for spread constraints."""

    side: str
    kind: str
    shape: Shape

    @property
    def name(self) -> str:
        """As kep-3633-alt calls it in its annotation."""
        return f"{self.side}.{self.kind}" if self.side else self.kind

    @property
    def annotation(self) -> str:
        """The annotation whose items are added to this list."""
        return f"kep-3633-alt.10h.in/{self.name}"

    @property
    def path(self) -> str:
        """Where the list stands in the pod."""
        return f"spec.affinity.{self.name}" if self.side else f"spec.{self.kind}"

    def of(self, pod: ReviewedPod) -> list[object]:
        """The items that the pod has in this list."""
        return list(
            listed(mapped(pod.affinity, self.side), self.kind) if self.side else pod.constraints or ()
        )

    def put(self, affinity: Json, items: Sequence[object]) -> Json:
        """The affinity with these items in this list; only for lists of spec.affinity."""
        return {**affinity, self.side: {**mapped(affinity, self.side), self.kind: list(items)}}

    def merged(self, items: Sequence[object], labels: Labels) -> list[object]:
        """The items with label values in their selectors, key lists still there. O(items x keys)."""
        if not self.side:
            return [merged_spread(item, labels) if isinstance(item, Mapping) else item for item in items]
        affinity = merged_affinity({self.side: {self.kind: list(items)}}, labels)
        return list(listed(mapped(affinity, self.side), self.kind))

    def keys(self, item: object) -> list[str]:
        """The label keys that the item's key lists name."""
        term = self._term(item)
        return [key for name in KEY_LISTS for key in listed(term, name) if isinstance(key, str)]

    def without_keys(self, item: object, found_in: Labels | None = None) -> object:
        """The item without its key lists, or without those keys in them that `found_in` has."""
        if not isinstance(item, Mapping):
            return item
        if self.kind == PREFERRED:
            return {**item, "podAffinityTerm": _without_keys(mapped(item, "podAffinityTerm"), found_in)}
        return _without_keys(item, found_in)

    def errors(self, items: Sequence[object], checked: Collection[int]) -> Iterator[FieldError]:
        """The rules that the items at the indices `checked` break, once merged."""
        objects = [item if isinstance(item, Mapping) else {} for item in items]
        if not self.side:
            yield from constraint_errors(objects, self.path, checked)
            return
        rules = weighted_term_errors if self.kind == PREFERRED else term_errors
        for index in sorted(checked):
            yield from rules(objects[index], f"{self.path}[{index}]")

    def _term(self, item: object) -> object:
        return mapped(item, "podAffinityTerm") if self.kind == PREFERRED else item


#: In the order in which upstream checks them.
SLOTS: Final = (
    *(
        Slot(side, kind, Term if kind == REQUIRED else WeightedTerm)
        for side in ("podAffinity", "podAntiAffinity")
        for kind in (REQUIRED, PREFERRED)
    ),
    Slot("", _SPREAD, Constraint),
)


def _without_keys(term: Mapping[str, object], found_in: Labels | None) -> Json:
    left: Json = {}
    for name, value in term.items():
        if name in KEY_LISTS:
            known = () if found_in is None else listed(term, name)
            value = [key for key in known if not isinstance(key, str) or key not in (found_in or ())]
            if not value:
                continue
        left[name] = value
    return left
