"""Writes selectors, namespaces, taints and amounts as kubectl and manifests do."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from scheduler.engine.model.requests import CPU, EPHEMERAL_STORAGE, MEMORY
from scheduler.engine.model.terms import NodeRequirement, RequiredNodeAffinity, Shares
from scheduler.engine.syntax.selectors import Requirement, Selector

EVERY_POD: Final = "every pod"
_BYTES: Final = (MEMORY, EPHEMERAL_STORAGE)
_BINARY: Final = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_COMPARISONS: Final = {"Gt": ">", "Lt": "<"}


def selector_text(selector: Selector) -> str:
    """Return the selector as `kubectl -l` reads it; a missing or empty one in words."""
    if selector.is_nothing:
        return "no pod (there is no labelSelector)"
    if selector.is_empty:
        return EVERY_POD
    return ",".join(requirement_text(requirement) for requirement in selector.requirements)


def waits_for_volume_text(claim: str, node: str) -> str:
    """Return that a claim waits for the volume that is made for it."""
    return f"claim {claim} waits for its volume on node {node}"


def requirement_text(requirement: Requirement | NodeRequirement) -> str:
    """Return the label requirement as `kubectl -l` reads it."""
    key, values = requirement.key, requirement.values
    match requirement.operator:
        case "In" if len(values) == 1:
            return f"{key}={values[0]}"
        case "NotIn" if len(values) == 1:
            return f"{key}!={values[0]}"
        case "In" | "NotIn":
            return f"{key} {requirement.operator.lower()} ({','.join(values)})"
        case "DoesNotExist":
            return f"!{key}"
        case "Gt" | "Lt":
            return f"{key}{_COMPARISONS[requirement.operator]}{values[0]}"
        case _:
            return key


def namespaces_text(names: Collection[str], selector: Selector) -> str:
    """Return the namespaces that a term covers, by name or by label, in words that follow `in`."""
    named = sorted(names)
    parts = [f"namespace{'s' if len(named) > 1 else ''} {', '.join(named)}"] if named else []
    if selector.is_empty:
        return "every namespace"
    if not selector.is_nothing:
        parts.append(f"namespaces with {selector_text(selector)}")
    return " and ".join(parts) or "no namespace"


def named_to(namespace: str, kind: str, key: str) -> str:
    """
    Return the kind and the key, `namespace/name`, of an object that a text on an object of `namespace` is about.

    Without a key of another namespace: the reader of one may not have the right to read the other.
    """
    if key.partition("/")[0] == namespace:
        return f"{kind} {key}"
    return f"a {kind} of another namespace"


def share_text(shares: Shares) -> str:
    """Return the share of the selected pods that a domain may have."""
    if not shares.weights:
        return f"{shares.percent}%"
    return ", ".join(f"{weight} in {domain}" for domain, weight in shares.weights)


def node_rule_text(rule: RequiredNodeAffinity) -> str:
    """Return the nodes that satisfy the rule, in words that follow `on`."""
    pairs = [f"{key}={value}" for key, value in rule.node_selector or ()]
    terms = [
        ",".join(requirement_text(each) for each in (*term.expressions, *term.names)) or "nothing"
        for term in rule.terms or ()
    ]
    if terms:
        pairs.append(terms[0] if len(terms) == 1 else f"one of ({'; '.join(terms)})")
    return f"nodes with {','.join(pairs)}" if pairs else "all nodes"


def taint_text(key: str, value: str, effect: str) -> str:
    """Return the taint as `kubectl taint` takes it."""
    return f"{key}={value}:{effect}" if value else f"{key}:{effect}"


def amount_text(resource: str, amount: int) -> str:
    """Return the amount, in scheduler units, as a quantity: exact, or rounded up to tenths of a binary unit."""
    if resource == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if resource in _BYTES or resource.startswith("hugepages-"):
        for suffix, size in _BINARY:
            if amount >= size:
                tenths = -(-amount * 10 // size)
                return f"{tenths // 10}{suffix}" if tenths % 10 == 0 else f"{tenths / 10:.1f}{suffix}"
    return str(amount)
