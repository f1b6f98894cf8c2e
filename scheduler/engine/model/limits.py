"""
Limits on the lists of a pod spec.

The API server limits little more than an object's bytes. Most rules cost their number times the nodes, label sets or
taints of a cluster, so without limits one pod could delay all others. If a spec exceeds a limit, its pending pods are
refused with a message (`engine.plugins.unsupported`), and on its running pods the lists that are too long count as
absent. No limit is near the size of real specs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from scheduler.engine.model.pods import Container, PodSpec
from scheduler.engine.model.requests import PLAIN_RESOURCES
from scheduler.engine.model.terms import ANY_NODE, NodeTerm, PodAffinity, SpreadConstraint
from scheduler.engine.syntax.selectors import Selector

#: Terms of pod affinity and anti-affinity together, terms of the annotation included.
MAX_TERMS: Final = 128
#: Terms whose labelSelector requires no value of any label: each is compared with every label set.
MAX_OPEN_TERMS: Final = 16
#: Values in the labelSelectors of pod affinity and of spread constraints, and in namespaceSelectors.
MAX_VALUES: Final = 2048
MAX_NAMESPACE_VALUES: Final = 256
#: Requirements of node affinity and nodeSelector together.
MAX_NODE_REQUIREMENTS: Final = 1024
MAX_SPREAD: Final = 64
MAX_TOLERATIONS: Final = 1024
#: Init containers included.
MAX_CONTAINERS: Final = 512
#: Distinct resource names in the requests of a pod.
MAX_RESOURCES: Final = 128


def within_limits(spec: PodSpec) -> PodSpec:
    """Return `spec`, or a copy without the lists that exceed a limit, which `exceeded_limits` names."""
    terms = _excess(_pod_affinity_counts(spec.affinity))
    spread = _excess(_spread_counts(spec.spread))
    nodes = _excess([("requirements on nodes", _n_node_requirements(spec), MAX_NODE_REQUIREMENTS)])
    tolerations = _excess([("tolerations", len(spec.tolerations), MAX_TOLERATIONS)])
    containers = _excess([("containers", len(spec.containers) + len(spec.init_containers), MAX_CONTAINERS)])
    resources = _excess([("resources", len(_resources(spec)), MAX_RESOURCES)])
    excesses = [*terms, *spread, *nodes, *tolerations, *containers, *resources]
    if not excesses:
        return spec
    return replace(
        spec,
        affinity=PodAffinity() if terms else spec.affinity,
        spread=() if spread else spec.spread,
        required_node_affinity=ANY_NODE if nodes else spec.required_node_affinity,
        preferred_nodes=None if nodes else spec.preferred_nodes,
        tolerations=() if tolerations else spec.tolerations,
        containers=_with_plain_requests(spec.containers) if resources else spec.containers,
        init_containers=_with_plain_requests(spec.init_containers) if resources else spec.init_containers,
        exceeded_limits=", ".join(excesses),
    )


#: The name of the counted thing, its number, and its limit.
_Count = tuple[str, int, int]


def _excess(counts: Iterable[_Count]) -> list[str]:
    return [f"{n} {what} ({limit} at most)" for what, n, limit in counts if n > limit]


def _pod_affinity_counts(affinity: PodAffinity) -> Iterator[_Count]:
    terms = list(affinity.usable_terms())
    n_open = sum(1 for term in terms if not term.selector.is_nothing and term.selector.anchor() is None)
    yield "terms of pod affinity and anti-affinity", len(terms), MAX_TERMS
    yield "such terms whose labelSelector requires no value", n_open, MAX_OPEN_TERMS
    yield "values in their labelSelectors", _n_values(t.selector for t in terms), MAX_VALUES
    n_namespace_values = _n_values(term.namespace_selector for term in terms)
    yield "values in their namespaceSelectors", n_namespace_values, MAX_NAMESPACE_VALUES


def _spread_counts(spread: tuple[SpreadConstraint, ...]) -> Iterator[_Count]:
    selectors = [each.selector for each in spread if isinstance(each.selector, Selector)]
    yield "topology spread constraints", len(spread), MAX_SPREAD
    yield "values in their labelSelectors", _n_values(selectors), MAX_VALUES


def _n_values(selectors: Iterable[Selector]) -> int:
    """Return the number of values of all requirements; a requirement without values counts as one."""
    return sum(max(1, len(values)) for selector in selectors for _, _, values in selector.requirements)


def _n_node_requirements(spec: PodSpec) -> int:
    preferred_terms = (preferred.term for preferred in spec.preferred_nodes or ())
    terms: Iterable[NodeTerm] = (*(spec.required_node_affinity.terms or ()), *preferred_terms)
    return len(spec.required_node_affinity.node_selector or ()) + sum(
        1 + len(term.expressions) + len(term.names) for term in terms
    )


def _resources(spec: PodSpec) -> set[str]:
    names = {*spec.overhead, *(spec.pod_requests or ())}
    for container in (*spec.containers, *spec.init_containers):
        names.update(container.requests)
    return names


def _with_plain_requests(containers: tuple[Container, ...]) -> tuple[Container, ...]:
    """Return the containers with their requests of cpu, memory and ephemeral storage alone."""
    return tuple(
        replace(
            container, requests={name: n for name, n in container.requests.items() if name in PLAIN_RESOURCES}
        )
        for container in containers
    )
