"""
The enforcer without its surroundings: what watches saw in, orders out.

    take_in(stimulus)     the state moves, and the index of rules with it; nothing else happens
    look(now_s)           broken rules -> how long each has been -> who goes -> at most one Evict
    answered(uid, ended)  the pod counts as leaving, or is tried again later

House rules:
 1. One eviction at a time: the next look sees what the last one changed.
 2. An evicted pod counts as terminating from the answer on, whatever an older watch event says.
 3. Times are of a clock that never goes back, and of this process alone; `lost_since` carries them over a restart.
 4. A look without the right to act keeps time and orders nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from scheduler.enforcing.detecting import Detector, Violation
from scheduler.enforcing.limiting import Backoff, Evictions, Limits
from scheduler.enforcing.orders import Ended, Evict, Found, Order, Origin, Refused, Telling
from scheduler.enforcing.planning import Departure, Plan, Planner
from scheduler.enforcing.rules import Question, Rule, RuleIndex, Side
from scheduler.enforcing.wording import told
from scheduler.model.pods import Pod
from scheduler.model.stimuli import (
    NamespaceGone,
    NamespaceSeen,
    NodeGone,
    NodeSeen,
    PodGone,
    PodSeen,
    Stimulus,
)
from scheduler.state.cluster import ClusterState

#: Findings of one look, at 50 µs each to be put into words; the next look goes on.
_FINDINGS_AT_ONCE: Final = 200


@dataclass(slots=True)
class Standing:
    """How things stood at the last look: what gauges show."""

    #: Broken rules by side: those that are enforced, and those that only had to hold at scheduling.
    enforced: Counter[str] = field(default_factory=Counter)
    ordinary: Counter[str] = field(default_factory=Counter)
    #: Pods that would go by what they wait for, and rules that no eviction would mend.
    waiting: Counter[str] = field(default_factory=Counter)
    n_enforced_pods: int = 0
    #: Broken rules, enforced first, and who goes for them: what `--once` prints.
    broken: list[Violation] = field(default_factory=list)
    departures: tuple[Departure, ...] = ()


@dataclass(slots=True)
class _Spell:
    """Since when a rule of a pod is broken, and whether that was told."""

    since_s: float
    origin: Origin
    told: bool = False


class Enforcer:
    """One enforcer. Not thread-safe: one caller, no awaits inside."""

    def __init__(
        self,
        limits: Limits,
        *,
        is_movable: Callable[[Pod], bool],
        acts: bool,
        exempt_namespaces: frozenset[str] = frozenset(),
    ) -> None:
        """
        Nothing is known yet.

        Args:
            limits: how fast and how far it goes.
            is_movable: whether an eviction would move a pod.
            acts: whether orders to evict are carried out; else each is given once and not waited for.
            exempt_namespaces: as in the scheduler's configuration.
        """
        self.state = ClusterState(exempt_namespaces, max_counted=None)
        self.index = RuleIndex(self.state, exempt_namespaces)
        self.standing = Standing()
        self._detector = Detector(self.state, self.index)
        self._planner = Planner(self.state, self.index, is_movable)
        self._limits = limits
        self._acts = acts
        self._evictions = Evictions(limits)
        self._spells: dict[tuple[str, Rule], _Spell] = {}
        #: Since when enforced affinity of a pod has no match, whatever became of its labels meanwhile.
        self._lost_s: dict[str, float] = {}
        #: What these pods asked for by then: a pod that asks anew has a grace period anew. Unknown after a restart.
        self._lost_question: dict[str, Question] = {}
        #: Of these pods, those whose match was gone at the first look: since when is not known here.
        self._lost_unseen: set[str] = set()
        #: What was told of a pod, for as long as it lives.
        self._told: dict[str, set[Question]] = {}
        self._backoffs: dict[str, Backoff] = {}
        self._asked: Pod | None = None
        #: Evicted, and not seen gone yet.
        self._leaving: set[str] = set()
        self._announced: set[str] = set()
        #: Pods placed since the last look; None before the first.
        self._newcomers: set[str] | None = None
        self._refusing = False
        self._wake_s: float | None = None

    # What watches see.

    def take_in(self, stimulus: Stimulus) -> None:
        """The state is as the stimulus says."""
        match stimulus:
            case PodSeen(pod) if pod.node_name and not pod.is_terminal:
                if self._newcomers is not None and pod.uid not in self.state.placed:
                    self._newcomers.add(pod.uid)
                if pod.uid in self._leaving and not pod.terminating:
                    pod = replace(pod, terminating=True)
                self.state.upsert_pod(pod)
                self.index.follow(pod.uid)
            case PodSeen(pod) if pod.is_terminal:
                self._lose(pod.uid)
            case PodGone(uid):
                self._lose(uid)
            case NodeSeen(node):
                self.state.upsert_node(node)
            case NodeGone(name):
                self.state.remove_node(name)
            case NamespaceSeen(namespace):
                self.state.upsert_namespace(namespace)
            case NamespaceGone(name):
                self.state.remove_namespace(name)
            case _:
                pass  # pods without a node, and what only schedulers read

    def _lose(self, uid: str) -> None:
        self.state.remove_pod(uid)
        self.index.follow(uid)
        for kept in (self._told, self._backoffs):
            kept.pop(uid, None)
        self._leaving.discard(uid)
        self._announced.discard(uid)

    def sweep(self) -> None:
        """What no pod uses any more is dropped. O(rules + selections + label sets)."""
        self.index.keep_selections()
        self.state.sweep()

    # Across restarts.

    def lost_since(self) -> Mapping[str, float]:
        """Since when the enforced affinity of which pod has no match, by uid."""
        return self._lost_s

    def restore(self, lost_since: Mapping[str, float]) -> None:
        """
        These pods had lost their match by then: the next look drops those that have one.

        What was seen to begin here stands: a match that was lost again, or a pod that asked anew, after the record.
        """
        for uid, since_s in lost_since.items():
            if self._newcomers is None or uid in self._lost_unseen:
                self._lost_s[uid] = min(since_s, self._lost_s.get(uid, since_s))

    # The look.

    def next_wake_s(self) -> float | None:
        """When the next look has something to do even if nothing changes; None if never."""
        return self._wake_s

    def look(self, now_s: float, *, leads: bool = True) -> list[Order]:
        """
        What is to be told and done now.

        Cost: O(rules + broken rules), and for those due also the pods in their domains.
        """
        self._wake_s = None
        broken = self._detector.broken()
        self._keep_time(broken, now_s)
        enforced = [each for each in broken if each.rule.question.enforced]
        plan = self._planner.plan([each for each in enforced if self._is_due(each, now_s)])
        self._stand(broken, enforced, plan)
        if not leads:
            return []
        return [*self._findings(broken, now_s), *self._evicting(plan, now_s)]

    def _keep_time(self, broken: Iterable[Violation], now_s: float) -> None:
        spells: dict[tuple[str, Rule], _Spell] = {}
        lost_s: dict[str, float] = {}
        questions: dict[str, Question] = {}
        unseen: set[str] = set()
        is_first = self._newcomers is None
        for violation in broken:
            uid, question = violation.uid, violation.rule.question
            key = (uid, violation.rule)
            spells[key] = self._spells.get(key) or _Spell(now_s, self._origin(violation))
            if _is_affinity(violation) and question.enforced:
                is_same = self._lost_question.get(uid, question) == question
                lost_s[uid] = self._lost_s.get(uid, now_s) if is_same else now_s
                questions[uid] = question
                if is_same and (is_first or uid in self._lost_unseen):
                    unseen.add(uid)
        self._spells, self._lost_s, self._lost_question = spells, lost_s, questions
        self._lost_unseen = unseen
        self._newcomers = set()

    def _origin(self, violation: Violation) -> Origin:
        if self._newcomers is None:
            return Origin.UNKNOWN
        if violation.uid in self._newcomers:
            return Origin.PLACEMENT
        if _is_affinity(violation):
            return Origin.CHANGE
        rule = violation.rule
        ids = self.state.nodes.column(rule.question.keys[0]).ids
        came = (self.state.placed[uid] for uid in self._newcomers if uid in self.state.placed)
        joined = any(
            ids[each.row] == ids[violation.row] and each.label_set in rule.selection.label_sets
            for each in came
        )
        return Origin.PLACEMENT if joined else Origin.CHANGE

    def _is_due(self, violation: Violation, now_s: float) -> bool:
        """Whether it was broken for long enough to act; remembers when it will be."""
        due_s = self._spells[violation.uid, violation.rule].since_s + self._limits.settle_s
        if _is_affinity(violation):
            grace_s = self.state.placed[violation.uid].pod.affinity_grace_s
            own = grace_s if isinstance(grace_s, (int, float)) else self._limits.grace_s
            due_s = self._lost_s[violation.uid] + own
        return self._reached(due_s, now_s)

    def _reached(self, at_s: float, now_s: float) -> bool:
        if at_s > now_s:
            self._wake_s = at_s if self._wake_s is None else min(self._wake_s, at_s)
        return at_s <= now_s

    def _stand(self, broken: list[Violation], enforced: list[Violation], plan: Plan) -> None:
        ordinary = [each for each in broken if not each.rule.question.enforced]
        goes = {each.pod.uid for each in plan.departures}
        n_patient = sum(_is_affinity(each) and each.uid not in goes for each in enforced)
        n_patient -= sum(_is_affinity(each) for each in plan.beyond_help)
        self.standing = Standing(
            enforced=Counter(each.rule.question.side.value for each in enforced),
            ordinary=Counter(each.rule.question.side.value for each in ordinary),
            waiting=Counter({"grace": n_patient, "beyond help": len(plan.beyond_help)}),
            n_enforced_pods=self.index.n_enforced_pods,
            broken=[*enforced, *ordinary],
            departures=plan.departures,
        )

    def _findings(self, broken: Iterable[Violation], now_s: float) -> list[Order]:
        """Broken rules that were not told yet. Ordinary affinity has the grace period too: peers are restarted."""
        found: list[Order] = []
        for violation in broken:
            spell, question = self._spells[violation.uid, violation.rule], violation.rule.question
            is_patient = _is_affinity(violation) and not question.enforced
            wait_s = self._limits.grace_s if is_patient else self._limits.settle_s
            if spell.told or not self._reached(spell.since_s + wait_s, now_s):
                continue
            if len(found) == _FINDINGS_AT_ONCE:
                self._wake_s = now_s
                break
            spell.told = True
            known = self._told.setdefault(violation.uid, set())
            if question not in known:
                known.add(question)
                pod = self.state.placed[violation.uid].pod
                telling = told(self.state, self.index, violation, pod.uid, None)
                found.append(Found(pod, telling, spell.origin))
        return found

    def _evicting(self, plan: Plan, now_s: float) -> list[Order]:
        going = {each.pod.uid for each in plan.departures}
        self._backoffs = {uid: backoff for uid, backoff in self._backoffs.items() if uid in going}
        self._announced &= going
        n_would_go, n_enforced = len(going) + self.standing.waiting["grace"], self.index.n_enforced_pods
        n_allowed = self._limits.allowed_at_once(n_enforced)
        was_refusing, self._refusing = self._refusing, bool(going) and n_would_go > n_allowed
        if self._refusing:
            self.standing.waiting["share"] = len(going)
            return [] if was_refusing else [Refused(n_would_go, n_enforced, n_allowed)]
        orders: list[Order] = []
        for departure in plan.departures:
            if not self._acts:
                orders += self._announce(departure)
            elif self._may_ask(departure.pod, now_s):
                self._asked = departure.pod
                orders.append(Evict(departure.pod, self._telling(departure)))
        return orders

    def _announce(self, departure: Departure) -> list[Order]:
        if departure.pod.uid in self._announced:
            return []
        self._announced.add(departure.pod.uid)
        return [Evict(departure.pod, self._telling(departure))]

    def _may_ask(self, pod: Pod, now_s: float) -> bool:
        backoff = self._backoffs.get(pod.uid)
        if backoff is not None and not self._reached(backoff.at_s, now_s):
            self.standing.waiting["budget"] += 1
            return False
        if self._asked is not None:
            self.standing.waiting["turn"] += self._asked.uid != pod.uid
            return False
        if self._evictions.allow(pod.namespace, pod.node_name, now_s):
            return True
        self.standing.waiting["limit"] += 1
        free_s = self._evictions.next_free_s()
        if free_s is not None:
            self._reached(free_s, now_s)
        return False

    def _telling(self, departure: Departure) -> Telling:
        return told(self.state, self.index, departure.violation, departure.pod.uid, departure.other)

    # The answer.

    def answered(self, uid: str, ended: Ended, now_s: float, *, retry_after_s: float | None = None) -> None:
        """The eviction that was asked for has ended so."""
        pod, self._asked = self._asked, None
        if pod is None or pod.uid != uid:
            return
        if ended in (Ended.BLOCKED, Ended.FAILED):
            self._backoffs.setdefault(uid, Backoff()).refused(now_s, retry_after_s)
            return
        if ended is Ended.EVICTED:
            self._evictions.note(pod.namespace, pod.node_name, now_s)
        placed = self.state.placed.get(uid)
        if placed is not None:
            self._leaving.add(uid)
            self.state.upsert_pod(replace(placed.pod, terminating=True))
            self.index.follow(uid)


def _is_affinity(violation: Violation) -> bool:
    return violation.rule.question.side is Side.AFFINITY
