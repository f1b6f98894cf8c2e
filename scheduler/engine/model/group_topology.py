"""
Where in a machine room the members of a group are to be: levels of domains, such as blocks, racks and hosts.

A level is a node label. Of a required level all members share the value; of a preferred one they take as few values as
they can, and fill one before the next. Levels are named from the outside in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from scheduler.engine.syntax.names import label_key_faults
from scheduler.engine.syntax.selectors import escaped

#: One node label, as label or annotation of members, which agree on it.
REQUIRED_TOPOLOGY: Final = "affinity-scheduler.io/pod-group-required-topology"
#: Node labels from the outside in, with commas between them; an annotation, as no label has commas.
PREFERRED_TOPOLOGY: Final = "affinity-scheduler.io/pod-group-preferred-topology"
#: A part of the group, by name, as label or annotation; how many of its members are placed, or none is; its levels.
PART: Final = "affinity-scheduler.io/pod-group-part"
PART_MIN_COUNT: Final = "affinity-scheduler.io/pod-group-part-min-count"
PART_REQUIRED_TOPOLOGY: Final = "affinity-scheduler.io/pod-group-part-required-topology"
PART_PREFERRED_TOPOLOGY: Final = "affinity-scheduler.io/pod-group-part-preferred-topology"

#: Most levels that a group may name.
_LIMIT_LEVELS: Final = 8


@dataclass(frozen=True, slots=True)
class Topology:
    """
    The levels that a group, or a part of it, asks for.

    `required`: node labels of whose values all members share one combination, such as block and rack where racks of two
    blocks have one name. `preferred`: levels within these.
    """

    required: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.required or self.preferred)

    def within(self, hierarchy: Sequence[str]) -> Topology:
        """
        Return the request with all levels of a hierarchy that it implies; the hierarchy is from the outside in.

        All levels outside the required one are required too, since racks of two blocks may have one name. All levels
        between the required and the lowest preferred one are preferred too. Keys of no level stay as they are.
        """
        required, preferred = self.required, self.preferred
        n_required = hierarchy.index(required[-1]) + 1 if required and required[-1] in hierarchy else 0
        if n_required:
            required = tuple(hierarchy[:n_required])
            preferred = tuple(key for key in preferred if key not in required)
        if preferred and preferred[-1] in hierarchy:
            preferred = tuple(hierarchy[n_required : hierarchy.index(preferred[-1]) + 1])
        return Topology(required, preferred)


ANYWHERE: Final = Topology()


@dataclass(frozen=True, slots=True)
class Part:
    """
    Members of a group that are placed together, or not at all, such as a leader with its workers.

    `min_count`: how many of them; the others are placed if they fit. `topology`: within the group's.
    """

    name: str
    min_count: int = 1
    topology: Topology = ANYWHERE


def parse_topology(required_name: str, preferred_name: str, said: Mapping[str, str]) -> tuple[Topology, str]:
    """Return the levels that a pod says under these two names, and why they do not parse; empty if they do."""
    required, preferred = said.get(required_name), said.get(preferred_name)
    if required is None and preferred is None:
        return ANYWHERE, ""
    levels = () if preferred is None else tuple(key.strip() for key in preferred.split(",", _LIMIT_LEVELS))
    keys_required = () if required is None else (required,)
    for name, text, keys in (
        (required_name, required, keys_required),
        (preferred_name, preferred, levels),
    ):
        if text is not None and (len(keys) > _LIMIT_LEVELS or any(label_key_faults(key) for key in keys)):
            expected = f"1 to {_LIMIT_LEVELS} keys" if name == preferred_name else "one key"
            found = escaped(text[:64])
            return ANYWHERE, f'{name} of the pod: found "{found}", expected {expected} of node labels'
    return Topology(keys_required, tuple(dict.fromkeys(levels))), ""
