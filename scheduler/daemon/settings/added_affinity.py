"""
Decodes NodeAffinity's addedAffinity strictly and parses its terms as at run time.

Source: component-helpers/scheduling/corev1/nodeaffinity (NewNodeSelector, NewPreferredSchedulingTerms), kubernetes
1.36. Of several problems in one requirement only the first is reported, as for a pod's own affinity.
"""

from scheduler.daemon.settings.decoding import ObjectReader
from scheduler.engine.model import wire
from scheduler.engine.model.affinity import parse_node_term

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def read_added_affinity(reader: ObjectReader) -> dict[str, object]:
    """Return the v1 NodeAffinity, without absent and null fields."""
    affinity: dict[str, object] = {}
    with reader:
        if reader.raw(_REQUIRED) is not None:
            with reader.child(_REQUIRED) as selector:
                terms = [_read_term(item, item.path) for item in selector.objects("nodeSelectorTerms")]
            affinity[_REQUIRED] = {"nodeSelectorTerms": terms}
        if reader.raw(_PREFERRED) is not None:
            affinity[_PREFERRED] = [_read_preferred(item) for item in reader.objects(_PREFERRED)]
    return affinity


def _read_preferred(reader: ObjectReader) -> dict[str, object]:
    with reader:
        weight = reader.integer("weight") or 0
        # Upstream's path lacks `preference`, and upstream does not parse terms of weight 0.
        preference = _read_term(reader.child("preference"), reader.path if weight else None)
    return {"weight": weight, "preference": preference}


def _read_term(reader: ObjectReader, path: str | None) -> dict[str, object]:
    """Return the term. Its problems are reported at `path`; None leaves it unparsed."""
    with reader:
        return {
            name: [
                _read_requirement(item, name, index, path) for index, item in enumerate(reader.objects(name))
            ]
            for name in ("matchExpressions", "matchFields")
            if reader.raw(name) is not None
        }


def _read_requirement(reader: ObjectReader, name: str, index: int, path: str | None) -> dict[str, object]:
    with reader:
        key, operator = reader.text("key") or "", reader.text("operator") or ""
        values = reader.texts("values")
    parsed = wire.Expression(key=key, operator=operator, values=values)
    in_fields = name == "matchFields"
    term = wire.NodeTerm(match_fields=(parsed,)) if in_fields else wire.NodeTerm(match_expressions=(parsed,))
    problem = parse_node_term(term).problem
    if path is not None and problem is not None:
        reader.problems.add(
            f"{path}.{name}[{index}].{problem.partition(': ')[0]}", problem.partition(": ")[2]
        )
    requirement: dict[str, object] = {"key": key, "operator": operator}
    return requirement | ({"values": list(values)} if values else {})
