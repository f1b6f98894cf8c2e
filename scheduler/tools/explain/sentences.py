"""Writes rules and changes as sentences, and finds in a message what all pods that wait for one reason share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, assert_never

from scheduler.engine.framework.explaining import Share
from scheduler.engine.model.changes import (
    AddMatchLabelKey,
    AddRoom,
    AllowSkew,
    Change,
    DropDeviceConstraint,
    HonorPolicy,
    LabelNamespace,
    LabelNode,
    RecreateWithMatchLabelKey,
    RemovePod,
    RemoveTaint,
    RollOutInPlace,
    RunPod,
    TolerateDeviceTaint,
    TolerateTaint,
    Uncordon,
    UnselectNode,
)
from scheduler.engine.model.volumes import SELECTED_NODE
from scheduler.engine.model.wording import EVERY_POD, amount_text, taint_text
from scheduler.engine.syntax.words import first_names
from scheduler.tools.explain.formats.explanation import DomainCount, Rule

#: The part of PostFilter in the message of a pod that fits nowhere: what is done with its claims, then preemption.
_POSTFILTER: Final = re.compile(
    r" (?:(?:no new claims to deallocate|still not schedulable|(?:deallocation|deletion) of ResourceClaim completed)"
    r"(?:, |$)|preemption: ).*",
    re.DOTALL,
)
_TOTAL: Final = re.compile(r"^0/\d+ nodes are available: ")
#: A count of nodes in the message of a FitError: it begins an entry. Other numbers say what is asked for.
_COUNT: Final = re.compile(r"(^|, )\d+ (?=\D)")
#: Full domains whose numbers a sentence has.
_SHOWN_FULL: Final = 4
#: Pods that one change names.
_SHOWN_PODS: Final = 4
#: The words for the members of a group of which a change is.
SUCH_MEMBERS: Final = "each such member"


def rule_text(rule: Rule) -> str:
    """Return what the rule requires, which pods declare it, and how many nodes it closes."""
    nodes = f"closes {rule.n_nodes} node{'' if rule.n_nodes == 1 else 's'}"
    selected = f"{rule.selects} in {rule.namespaces}"
    pods = f"in {rule.namespaces}" if rule.selects == EVERY_POD else f"with {selected}"
    match rule.kind:
        case "requiredAffinity":
            return f"The pod's affinity: beside a pod {pods}, by {rule.topology_key}; {nodes}"
        case "requiredAntiAffinity" | "existingAntiAffinity" if rule.share is not None:
            is_own = rule.kind == "requiredAntiAffinity"
            whose = "The pod's anti-affinity" if is_own else "Anti-affinity of running pods"
            share = f"{rule.share.percent}%" if rule.share.percent else "its weight's share"
            limit = f"per {rule.topology_key} {share} of the pods {pods}"
            if rule.share.is_of_minimum:
                minimum = f"{share} of its group's minimum of {rule.share.n_pods}"
                limit = f"per {rule.topology_key} as many pods {pods} as {minimum}"
            return f"{whose}: {limit}{_shares_text(rule, rule.share)}; {nodes}"
        case "requiredAntiAffinity":
            return f"The pod's anti-affinity: not beside {_too_many(rule)} {pods}, by {rule.topology_key}; {nodes}"
        case "existingAntiAffinity":
            term = f"Anti-affinity of running pods against {_too_many(rule)} {pods}"
            return f"{term}, by {rule.topology_key}; {nodes}"
        case "topologySpread":
            return f"The pod's spread of {selected}, by {rule.topology_key}: {_skew_text(rule)}; {nodes}"
        case _:
            return f"{rule.kind}: {selected}, by {rule.topology_key}; {nodes}"


def _too_many(rule: Rule) -> str:
    """Return the start of a phrase for the pods that exclude the pod: any, or more than a number of them."""
    most = max((domain.most or 0 for domain in rule.domains), default=0)
    return f"more than {most} pod{'' if most == 1 else 's'}" if most else "pods"


def _shares_text(rule: Rule, share: Share) -> str:
    """Return the numbers of the first domains that are full, and of how many more."""
    full = [domain for domain in rule.domains if not domain.allowed]
    of = "" if share.is_of_minimum else f" of {share.n_pods}"
    texts = [f"{each.domain} has {each.n_pods}{of} pods, {_allows(each, share)}" for each in full]
    more = f", and {len(full) - _SHOWN_FULL} more" if len(full) > _SHOWN_FULL else ""
    declaring = ", and the one that declares the rule" if share.declaring_takes else ""
    return f": {'; '.join(texts[:_SHOWN_FULL])}{more} (with this pod{declaring})" if full else ""


def _allows(domain: DomainCount, share: Share) -> str:
    most = (domain.most or 0) + 1 + share.declaring_takes
    if share.percent:
        return f"{share.percent}% allows {most}"
    if domain.domain not in share.weights:
        return "without a weight none is allowed"
    weight = f"weight {share.weights[domain.domain]} of {sum(share.weights.values())}"
    return f"{weight} allows {most}"


def _skew_text(rule: Rule) -> str:
    if rule.skew is None:
        return "no numbers"
    skew = rule.skew
    if not skew.n_domains:
        return f"maxSkew {skew.max_skew}, but no node is eligible"
    text = f"maxSkew {skew.max_skew}, the emptiest domain has {skew.fewest}"
    if skew.n_domains < skew.min_domains:
        too_few = "domain is" if skew.n_domains == 1 else "domains are"
        text += f" (it counts as empty: {skew.n_domains} {too_few} fewer than minDomains {skew.min_domains})"
    return text if skew.counts_itself else f"{text}; the pod itself does not count"


def change_text(change: Change, pod: str = "the pod") -> str:
    """Return the change as a sentence. `pod`: the words for the pods of which a `PodChange` is."""
    match change:
        case RemovePod(namespace=namespace, pod=name, node=node, terminating=terminating):
            going = " (it is terminating already)" if terminating else ""
            return f"pod {namespace}/{name} leaves node {node}{going}"
        case RunPod(namespace=namespace, labels=labels, node=node):
            pairs = ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "any labels"
            return f"a pod with {pairs} runs in namespace {namespace} on node {node} or in its domain"
        case AddRoom(node=node, resource="pods"):
            return f"node {node} has room for one more pod"
        case AddRoom(node=node, resource=resource, amount=amount):
            return f"node {node} has {amount_text(resource, amount)} more {resource}"
        case TolerateTaint(key=key, value=value, effect=effect):
            return f"{pod} tolerates the taint {taint_text(key, value, effect)}"
        case RemoveTaint(node=node, key=key, value=value, effect=effect):
            return f"node {node} loses the taint {taint_text(key, value, effect)}"
        case Uncordon(node=node):
            return f"node {node} is uncordoned"
        case LabelNode(node=node, key=key, value=None):
            return f"node {node} loses the label {key}"
        case LabelNode(node=node, key=key, value=value):
            return f"node {node} has the label {key}={value}"
        case LabelNamespace(namespace=namespace, key=key, value=value):
            return f"namespace {namespace} has the label {key}={value}"
        case AllowSkew(topology_key=topology_key, max_skew=max_skew):
            return f"{pod}'s spread by {topology_key} allows maxSkew {max_skew}"
        case AddMatchLabelKey(field=field, topology_key=topology_key, label_key=label_key):
            return f"{pod}'s {field} with topologyKey {topology_key} has matchLabelKeys: [{label_key}]"
        case HonorPolicy(topology_key=topology_key, field=field):
            return f"{pod}'s spread by {topology_key} has {field}: Honor"
        case RollOutInPlace(namespace=namespace, deployment=deployment):
            return f"Deployment {namespace}/{deployment} rolls out with maxSurge: 0, maxUnavailable: 1"
        case UnselectNode(claim=claim):
            return f"claim {claim} is without the annotation {SELECTED_NODE}"
        case RecreateWithMatchLabelKey(topology_key=topology_key, pods=pods):
            which = f"with that term by {topology_key}"
            are = f"the running pod {which} is" if pods == 1 else f"the {pods} running pods {which} are"
            return (
                f"{are} created anew, with matchLabelKeys too (a Deployment does it with strategy Recreate)"
            )
        case TolerateDeviceTaint(claim=claim, request=request, key=key, value=value, effect=effect):
            return f"request {request} of claim {claim} tolerates the device taint {taint_text(key, value, effect)}"
        case DropDeviceConstraint(claim=claim, attribute=attribute):
            return f"claim {claim} has no constraint on {attribute}"
        case _:
            assert_never(change)


def change_texts(changes: Sequence[Change], pod: str, *, wide: bool) -> Iterator[str]:
    """Yield one line per change; several removed pods are one line. `pod`: see `change_text`."""
    leaving = [change for change in changes if isinstance(change, RemovePod)]
    others = [change for change in changes if not isinstance(change, RemovePod)]
    texts = [change_text(change, pod) for change in others]
    if len(leaving) == 1:
        texts.append(change_text(leaving[0]))
    elif leaving:
        names = [f"{pod.namespace}/{pod.pod} from {pod.node}" for pod in leaving]
        texts.append(f"{len(names)} pods leave: {first_names(names, len(names) if wide else _SHOWN_PODS)}")
    for place, text in enumerate(texts):
        yield text if place == 0 else f"and {text}"


def refusals_in(message: str) -> str:
    """Return the message without its part on preemption."""
    return _POSTFILTER.sub("", message)


def reason_in(message: str) -> str:
    """Return the message without numbers of nodes and without its part on preemption."""
    refusals = refusals_in(message)
    entries = _TOTAL.sub("", refusals)
    return (refusals if entries == refusals else _COUNT.sub(r"\1", entries)).rstrip(".")
