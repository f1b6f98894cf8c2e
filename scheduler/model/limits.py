"""
How much of a spec is decided on. The API server bounds an object's bytes and little else; most rules cost their number
times the nodes, the label sets or the taints of a cluster, so that one pod could hold up all others.

A spec beyond a limit is not read in part: a pending pod of it is refused in words (`plugins.unsupported`), and on a
running pod the lists that are too long count as absent. No limit is near what people write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from scheduler.model.labels import Selector
from scheduler.model.terms import ANY_NODE, NodeTerm, PodAffinity, SpreadConstraint, usable

if TYPE_CHECKING:
    from scheduler.model.pods import Container, PodSpec

#: Terms of pod affinity and anti-affinity in all; an annotation may add as many (see `annotations`).
MAX_TERMS: Final = 128
#: Those of them whose labelSelector requires no value of any label: each is compared with every label set.
MAX_OPEN_TERMS: Final = 16
#: Requirements and values in labelSelectors, of pod affinity and of spread constraints each; in namespaceSelectors.
MAX_VALUES: Final = 2048
MAX_NAMESPACE_VALUES: Final = 256
#: Requirements of node affinity and nodeSelector in all.
MAX_NODE_REQUIREMENTS: Final = 1024
MAX_SPREAD: Final = 64
MAX_TOLERATIONS: Final = 1024
#: Init containers included.
MAX_CONTAINERS: Final = 512
#: Resources that a pod names.
MAX_RESOURCES: Final = 128

_PLAIN: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


def bounded(spec: PodSpec) -> PodSpec:
    """The spec, or what is left of it where it is beyond a limit; `excess` says so then. O(size of the spec)."""
    neighbours = _excess(_of_neighbours(spec.affinity))
    spread = _excess(_of_spread(spec.spread))
    nodes = _excess([("requirements on nodes", _n_node_requirements(spec), MAX_NODE_REQUIREMENTS)])
    tolerations = _excess([("tolerations", len(spec.tolerations), MAX_TOLERATIONS)])
    containers = _excess([("containers", len(spec.containers) + len(spec.init_containers), MAX_CONTAINERS)])
    resources = _excess([("resources", len(_resources(spec)), MAX_RESOURCES)])
    found = [*neighbours, *spread, *nodes, *tolerations, *containers, *resources]
    if not found:
        return spec
    return replace(
        spec,
        affinity=PodAffinity() if neighbours else spec.affinity,
        spread=() if spread else spec.spread,
        node_rule=ANY_NODE if nodes else spec.node_rule,
        preferred_nodes=None if nodes else spec.preferred_nodes,
        tolerations=() if tolerations else spec.tolerations,
        containers=_plain(spec.containers) if resources else spec.containers,
        init_containers=_plain(spec.init_containers) if resources else spec.init_containers,
        excess=", ".join(found),
    )


#: What is counted, how many there are, and how many there may be.
_Count = tuple[str, int, int]


def _excess(counts: Iterable[_Count]) -> list[str]:
    return [f"{n} {what} ({limit} at most)" for what, n, limit in counts if n > limit]


def _of_neighbours(affinity: PodAffinity) -> Iterator[_Count]:
    lists = (affinity.required, affinity.required_anti, affinity.preferred, affinity.preferred_anti)
    terms = [term for one in lists for term in usable(one)]
    n_open = sum(1 for term in terms if not term.selector.is_nothing and term.selector.anchor() is None)
    yield "terms of pod affinity and anti-affinity", len(terms), MAX_TERMS
    yield "such terms whose labelSelector requires no value", n_open, MAX_OPEN_TERMS
    yield "values in their labelSelectors", _n_values(t.selector for t in terms), MAX_VALUES
    n_of_namespaces = _n_values(term.namespace_selector for term in terms)
    yield "values in their namespaceSelectors", n_of_namespaces, MAX_NAMESPACE_VALUES


def _of_spread(spread: tuple[SpreadConstraint, ...]) -> Iterator[_Count]:
    selectors = [one.selector for one in spread if isinstance(one.selector, Selector)]
    yield "topology spread constraints", len(spread), MAX_SPREAD
    yield "values in their labelSelectors", _n_values(selectors), MAX_VALUES


def _n_values(selectors: Iterable[Selector]) -> int:
    """Each requirement counts as its values, as one where it has none."""
    return sum(max(1, len(one.values)) for selector in selectors for one in selector.requirements)


def _n_node_requirements(spec: PodSpec) -> int:
    preferred = (one.term for one in spec.preferred_nodes or ())
    terms: Iterable[NodeTerm] = (*(spec.node_rule.terms or ()), *preferred)
    return len(spec.node_rule.pairs or ()) + sum(
        1 + len(term.expressions) + len(term.names) for term in terms
    )


def _resources(spec: PodSpec) -> set[str]:
    names = {*spec.overhead, *(spec.pod_requests or ())}
    for container in (*spec.containers, *spec.init_containers):
        names.update(container.requests)
    return names


def _plain(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    """The containers, asking for cpu, memory and ephemeral storage alone."""
    return tuple(
        replace(one, requests={name: n for name, n in one.requests.items() if name in _PLAIN})
        for one in containers
    )
