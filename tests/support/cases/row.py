"""One edge case: a cluster, a pod, and what one plugin answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypedDict

from tests.support.build import Json

#: The code, then the reasons.
Refusal = tuple[str, ...]

U: Final = "Unschedulable"
UR: Final = "UnschedulableAndUnresolvable"


class Expected(TypedDict, total=False):
    """The fields of `Row` that say what is expected, and the configuration under which."""

    config: Json | None
    refused: Mapping[str, Refusal]
    scores: Mapping[str, int]
    prefilter: Refusal
    error: str


@dataclass(frozen=True)
class Row:
    """An edge case; None expects nothing. `id` starts with the number of the row or section in the rules."""

    id: str
    plugin: str
    #: Applied in order.
    objects: Sequence[Json]
    pod: Json
    config: Json | None = None
    #: By node: every refusal of the plugin's filter; `{}` where it lets the pod in everywhere.
    refused: Mapping[str, Refusal] | None = None
    #: By node: the plugin's normalised scores of all feasible nodes.
    scores: Mapping[str, int] | None = None
    #: The refusal of the plugin's PreFilter; the reason's beginning is enough.
    prefilter: Refusal | None = None
    #: The beginning of the error that ends the cycle.
    error: str | None = None


def differences(row: Row, decision: Json) -> list[str]:
    """Return a line for each expectation of the row that a decision, in the shape of a record, does not meet."""
    found = []
    if row.error is not None:
        found += _unless(
            str(decision.get("error", "")).startswith(row.error), "error", row.error, decision.get("error")
        )
    elif "error" in decision:
        found.append(f"error: expected none, got {decision['error']}")
    if row.prefilter is not None:
        code, start = row.prefilter
        got = decision.get("prefilter", {}).get(row.plugin, {})
        agrees = got.get("code") == code and got["reasons"][0].startswith(start)
        found += _unless(agrees, "prefilter", row.prefilter, got)
    elif "prefilter" in decision:
        found.append(f"prefilter: expected none, got {decision['prefilter']}")
    if row.refused is not None:
        by_node = decision.get("filter", {}).get(row.plugin, {})
        got_refused = {
            node: (verdict["code"], *sorted(verdict["reasons"])) for node, verdict in by_node.items()
        }
        wanted = {node: (code, *sorted(reasons)) for node, (code, *reasons) in row.refused.items()}
        found += _unless(got_refused == wanted, "filter", wanted, got_refused)
    if row.scores is not None:
        scores = decision.get("score", {}).get(row.plugin)
        found += _unless(scores == row.scores, "score", row.scores, scores)
    return found


def _unless(agrees: bool, field: str, expected: object, got: object) -> list[str]:
    return [] if agrees else [f"{field}: expected {expected}, got {got}"]
