"""
Recorded lives of clusters with devices, played to the product: its state, its plugins, and its writer of claims.

Each pod is decided, and placed where the recording placed it; what is written goes to a `ClaimServer`.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np

from scheduler.daemon.assembly.profiles import build_profiles
from scheduler.daemon.settings.loading import parse_settings
from scheduler.daemon.writes.reservation_writer import ReservationWriter
from scheduler.daemon.writes.sending import Sender
from scheduler.engine.core.decide import decide
from scheduler.engine.framework.diagnosis import FitError
from scheduler.engine.framework.interface import FeasibleNodes, NodeFilter, PodContext, PreFilterResult
from scheduler.engine.framework.node_trial import FilterTrials
from scheduler.engine.framework.post_filter import UnfitPod
from scheduler.engine.framework.reserving import Reservation
from scheduler.engine.framework.status import Code, Skip, Status
from scheduler.engine.model.claim_writes import ClaimDeletion
from scheduler.engine.model.device_requests import SPECIAL_NAME, ResourceClaim
from scheduler.engine.model.devices import DeviceKind
from scheduler.engine.model.instructions import WriteObjects, WriteReservation
from scheduler.engine.model.pods import Pod
from scheduler.engine.model.stimuli import ReservationWritten
from scheduler.engine.plugins.dynamic_resources.filtering import DeviceFilter, NodeAllocation
from scheduler.engine.plugins.dynamic_resources.plugin import DynamicResources
from scheduler.engine.plugins.dynamic_resources.reserving import NAME
from scheduler.engine.state.audit import differences
from scheduler.engine.state.batches import finished
from scheduler.engine.state.cluster_view import ClusterView
from scheduler.errors import PluginFailed
from tests.conformance.compare import Mismatch, decision_mismatches
from tests.conformance.product import LiveCluster, as_json, refused, scores
from tests.conformance.traces import Bind, Delete, DeviceLife, Json, Schedule, Unreserve
from tests.support.claim_server import ClaimServer
from tests.support.daemon import plugin_config
from tests.support.messages import without_compile_errors
from tests.support.scripted_server import FakeSleep

#: The clock of the recordings: 2030-01-01.
_NOW_S = 1893456000.0
_NOW = "2030-01-01T00:00:00Z"
#: No pod is evicted for its devices.
_AS_UPSTREAM: Json = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"pluginConfig": plugin_config("DynamicResources", preemptForDevices=False)}],
}
_CONDITION_TIME = "2026-01-01T00:00:00Z"


class _Held:
    """A pod between Reserve and Bind."""

    def __init__(self, pod: Pod, node_name: str, reservation: Reservation | None) -> None:
        self.pod, self.node_name, self.reservation = pod, node_name, reservation


class _NamingServer(ClaimServer):
    """A server that names claims as the recorded one, whose scheduler leaves the end of their names to it."""

    def _create(self, namespace: str, body: Json) -> Json:
        prefix = body["metadata"]["name"].rpartition("-")[0]
        body["metadata"]["name"] = f"{prefix}-{self._n_created + 1:05}"
        return super()._create(namespace, body)


class DeviceCluster:
    """The product, and the server that its writes go to."""

    def __init__(self) -> None:
        self.cluster = LiveCluster()
        self.cluster.state.devices.serve(*DeviceKind)
        self.cluster.state.devices.epoch_s = _NOW_S
        settings = parse_settings(json.dumps(_AS_UPSTREAM), "as upstream")
        profiles = build_profiles(settings, self.cluster.view())
        self.profile = profiles[settings.profiles[0].scheduler_name]
        (self.plugin,) = (each for each in self.profile.filters if isinstance(each, DynamicResources))
        self.server = _NamingServer()
        self.writer = ReservationWriter(
            Sender(self.server, sleep=FakeSleep()),  # type: ignore[arg-type]  # it answers the requests of this writer
            clock_s=lambda: _NOW_S,
        )
        self._held: dict[tuple[str, str], _Held] = {}
        self._shares: dict[str, str] = {}

    def _reserve(self, held: _Held) -> None:
        state, pod, node_name = self.cluster.state, held.pod, held.node_name
        state.assume(replace(pod, node_name=node_name), node_name)
        for write in () if held.reservation is None else held.reservation.writes:
            state.stored_with(write.obj).assume(write, pod.uid)

    def apply(self, obj: Json) -> None:
        """Create or replace an object, as another client does."""
        if obj["kind"] == "ResourceClaim":
            obj = self.server.put(obj)
        self.cluster.apply(obj)

    def delete(self, kind: str, namespace: str | None, name: str) -> None:
        """Remove an object, if it is there."""
        if kind == "ResourceClaim":
            self.server.claims.pop(f"{namespace}/{name}", None)
        self.cluster.delete(kind, namespace, name)

    def schedule(self, op: Schedule, expected: Json) -> Json:
        """Decide on the pod and place it where it is `expected`; return the entry."""
        pod, view = self.cluster.pod(op.object), self.cluster.view()
        # Placed already where an earlier step differs from the recording.
        self.cluster.state.remove_pod(pod.uid)
        gate = self.plugin.gate(pod)
        entry: Json = {} if gate is None else {"preenqueue": as_json(gate)}
        context = PodContext(pod, view.label_set(pod))
        entry |= self._decided(context, view)
        if not entry["feasible"]:
            if "error" not in entry:
                entry |= self._unfit(context, view, expected)
            return entry
        best = max(entry["total"].values())
        entry["chosen"] = min(name for name, total in entry["total"].items() if total == best)
        node_name = expected.get("chosen") or entry["chosen"]
        row = view.nodes.row_by_name[node_name]
        device_filter = context.cycle_state.get(NAME)
        reservation = None if device_filter is None else device_filter.reserve(row)
        held = _Held(pod, node_name, reservation)
        self._reserve(held)
        if op.hold:
            self._held[pod.namespace, pod.name] = held
            return {**entry, "held": True}
        return entry | self._bind(held, fails=op.driver == "failed")

    def bind(self, op: Bind) -> Json:
        """Go on with a held pod."""
        held = self._held.pop((op.namespace, op.name), None)
        if held is None:
            return {"feasible": []}
        return {"feasible": [], "chosen": held.node_name, **self._bind(held, fails=False)}

    def unreserve(self, op: Unreserve) -> Json:
        """Give a held pod up."""
        held = self._held.pop((op.namespace, op.name), None)
        if held is None:
            return {"feasible": []}
        self.server.writes.clear()
        before = dict(self.server.claims)
        self._give_up(held, ())
        return {"feasible": [], "chosen": held.node_name, **self._written(before)}

    def _decided(self, context: PodContext, view: ClusterView) -> Json:
        filters: dict[str, NodeFilter] = {}
        rejected: Json = {}
        entry: Json = {}
        for plugin in self.profile.filters:
            result = plugin.prefilter(context, view)
            if isinstance(result, Status):
                rejected[plugin.name] = as_json(result)
            elif isinstance(result, Skip):
                entry |= {"skipped": True} if plugin.name == NAME else {}
            else:
                filters[plugin.name] = result.node_filter if isinstance(result, PreFilterResult) else result
        failed = [
            f'running PreFilter plugin "{name}": {", ".join(status["reasons"])}'
            for name, status in rejected.items()
            if status["code"] == Code.ERROR.value
        ]
        if rejected:
            if failed:
                return {**entry, "error": failed, "feasible": []}
            return {**entry, "prefilter": rejected, "feasible": []}
        left, errors = view.alive.copy(), set()
        for name, node_filter in filters.items():
            statuses = node_filter.statuses()
            if isinstance(node_filter, DeviceFilter):
                # As the cycle asks it: PostFilter knows of these nodes alone.
                with suppress(PluginFailed):
                    node_filter.mask_within(left)
            for row in np.flatnonzero(left).tolist():
                status = statuses.at(row)
                if status is not None and status.code is Code.ERROR:
                    errors.add(f'running "{name}" filter plugin: {status.message}')
            left &= statuses.codes == 0
        entry["filter"] = {name: by_node for name, f in filters.items() if (by_node := refused(f, view))}
        rows = np.flatnonzero(left).tolist()
        entry["devices"] = self._devices(filters.get(NAME), rows, view)
        if errors:
            return {**entry, "error": sorted(errors), "feasible": []}
        entry["feasible"] = [view.nodes.name_of(row) for row in rows]
        if rows:
            entry |= scores(context, view, self.profile, left)
            entry |= self._device_scores(context, view, FeasibleNodes(left), entry)
        return entry

    def _device_scores(
        self, context: PodContext, view: ClusterView, feasible: FeasibleNodes, entry: Json
    ) -> Json:
        """Return the raw scores; the plugin leaves out pods without claims, to which upstream gives 0."""
        zeros = dict.fromkeys(entry["feasible"], 0)
        scorer = self.plugin.prescore(context, view, feasible)
        if isinstance(scorer, Skip | Status):
            return {"rawScore": zeros, "score": {**entry["score"], NAME: zeros}}
        raw = scorer.raw().tolist()
        return {"rawScore": {name: raw[view.nodes.row_by_name[name]] for name in zeros}}

    def _devices(self, node_filter: NodeFilter | None, rows: list[int], view: ClusterView) -> Json:
        if not isinstance(node_filter, DeviceFilter):
            return {}
        answers = [(view.nodes.name_of(row), node_filter.answer(row)) for row in rows]
        return {
            name: _devices_of(answer)
            for name, answer in answers
            if isinstance(answer, NodeAllocation) and answer.claims
        }

    def _unfit(self, context: PodContext, view: ClusterView, expected: Json) -> Json:
        """Return the message and PostFilter's part; carry out what PostFilter writes, as recorded."""
        decision = decide(context.pod, view, self.profile, Random(0))
        assert isinstance(decision, FitError), decision
        entry: Json = {"message": decision.message()}
        asked = context.cycle_state.get(NAME)
        unfit = UnfitPod(context, decision, FilterTrials([]), context.pod.priority)
        unavailable = sorted(claim.key for claim in asked.unavailable()) if asked is not None else []
        freed = expected.get("postfilter", {}).get("freed")
        result = finished(self.plugin.postfilter(unfit, view, Random(0)))
        for seed in range(100):
            result = finished(self.plugin.postfilter(unfit, view, Random(seed)))
            if freed is None or any(write.obj.key == freed for write in result.writes):
                break
        postfilter: Json = {"reasons": list(result.status.reasons)}
        postfilter |= {"unavailable": unavailable} if unavailable else {}
        for write in result.writes:
            postfilter["deleted" if isinstance(write, ClaimDeletion) else "freed"] = write.obj.key
        self.server.writes.clear()
        before = dict(self.server.claims)
        if result.writes:
            assert asyncio.run(self.writer.write_all(WriteObjects(context.pod, result.writes))) == []
        self._show(before)
        return {**entry, "postfilter": postfilter, **self._written(before)}

    def _bind(self, held: _Held, *, fails: bool) -> Json:
        pod, reservation = held.pod, held.reservation
        state, view = self.cluster.state, self.cluster.view()
        before = dict(self.server.claims)
        self.server.writes.clear()
        self.server.pod_patches.clear()
        entry: Json = {}
        problem, answer = "", ReservationWritten(pod.uid, ())
        if reservation is not None:
            self.server.on_allocated = lambda claim: self._drive(claim, fails=fails)
            write = WriteReservation(pod, held.node_name, reservation.writes)
            answer = asyncio.run(self.writer.write(write))
            problem = answer.problem
            for made, version in zip(reservation.writes, answer.versions, strict=False):
                state.stored_with(made.obj).settle(made.obj, version, pod.uid)
            self._show(before)
            node = state.node(held.node_name)
            if not problem and node is not None:
                note = reservation.waiting_note(held.node_name, view)
                entry |= {"events": [f"Normal BindingConditionsPending {note}"]} if note else {}
                done = reservation.is_done(answer.versions, node, view)
                assert done is not False, "waits for a watch"
                problem = reservation.failure(done) if isinstance(done, str) else ""
        if problem:
            self._give_up(held, answer.objects)
            entry["prebind"] = {"code": Code.ERROR.value, "reasons": [problem]}
        else:
            for made in () if reservation is None else reservation.writes:
                state.stored_with(made.obj).forget(made.obj, pod.uid)
            state.upsert_pod(replace(pod, node_name=held.node_name))
            self.cluster.remember(pod)
        if self.server.pod_patches:
            entry["extendedResourceClaimStatus"] = self.server.pod_patches[-1]["extendedResourceClaimStatus"]
        return {**entry, **self._written(before)}

    def _give_up(self, held: _Held, objects: tuple[Any, ...]) -> None:
        state, reservation = self.cluster.state, held.reservation
        before = dict(self.server.claims)
        if reservation is not None:
            undo = tuple(reservation.undo(objects, is_preempted=False))
            for write in reservation.writes:
                state.stored_with(write.obj).forget(write.obj, held.pod.uid)
            if undo:
                asyncio.run(self.writer.write_all(WriteObjects(held.pod, undo)))
        state.forget(held.pod.uid)
        self._show(before)

    def _drive(self, claim: Json, *, fails: bool) -> None:
        """Set the conditions of devices that have some and no state yet, as their drivers do."""
        status = claim.get("status", {})
        known = {(each["driver"], each["pool"], each["device"]) for each in status.get("devices", [])}
        added = []
        for result in status.get("allocation", {}).get("devices", {}).get("results", []):
            device = {name: result[name] for name in ("driver", "pool", "device")}
            if not result.get("bindingConditions") or tuple(device.values()) in known:
                continue
            failure = result.get("bindingFailureConditions", [])[:1] if fails else []
            names = failure or result["bindingConditions"]
            added.append({**device, "conditions": [_condition(name) for name in names]})
        if added:
            self.server.put({**claim, "status": {**status, "devices": [*status.get("devices", []), *added]}})

    def _show(self, before: Mapping[str, Json]) -> None:
        """Let the watch show the claims that are not as they were."""
        for key in [key for key in before if key not in self.server.claims]:
            namespace, _, name = key.partition("/")
            self.cluster.delete("ResourceClaim", namespace, name)
        for key, claim in self.server.claims.items():
            if before.get(key) != claim:
                self.cluster.apply({**claim, "kind": "ResourceClaim"})

    def _written(self, before: Mapping[str, Json]) -> Json:
        entry: Json = {}
        if self.server.writes:
            entry["writes"] = list(self.server.writes)
        changed = {
            key: self._recorded(claim, is_new=key not in before)
            for key, claim in self.server.claims.items()
            if before.get(key) != claim
        }
        return {**entry, "claims": changed} if changed else entry

    def _recorded(self, claim: Json, *, is_new: bool) -> Json:
        claim = json.loads(json.dumps(claim))
        recorded: Json = {"requests": claim["spec"]["devices"]["requests"]} if is_new else {}
        if finalizers := claim["metadata"].get("finalizers"):
            recorded["finalizers"] = finalizers
        if "status" in claim:
            status = recorded["status"] = claim["status"]
            allocation = status.get("allocation", {})
            if allocation.get("allocationTimestamp") == _NOW:
                allocation["allocationTimestamp"] = "<now>"
            for result in allocation.get("devices", {}).get("results", []):
                if "shareID" in result:
                    share = result["shareID"]
                    result["shareID"] = self._shares.setdefault(share, f"<share-{len(self._shares) + 1}>")
        return recorded


def _condition(name: str) -> Json:
    return {
        "type": name,
        "status": "True",
        "lastTransitionTime": _CONDITION_TIME,
        "reason": "Driver",
        "message": "by the driver",
    }


def _devices_of(answer: NodeAllocation) -> Json:
    return {
        _shown_key(claim): [
            f"{result.request}={result.driver}/{result.pool}/{result.device}"
            + "".join(
                f" {name}:{amount}" for name, amount in sorted((result.consumed_capacity or {}).items())
            )
            for result in allocation.devices.results
        ]
        for claim, allocation in zip(answer.claims, answer.allocations, strict=True)
    }


def _shown_key(claim: ResourceClaim) -> str:
    return f"{claim.namespace}/{SPECIAL_NAME}" if not claim.resource_version else claim.key


def life_answers(life: DeviceLife) -> Iterator[tuple[str, list[Mismatch]]]:
    """
    Yield a description of each step that has an entry, and the mismatches of its answer.

    A life of which upstream's defects decide a step is played up to that step, which has to differ in nothing but the
    devices that are found. Without such a step, the last answer has a mismatch that says so.
    """
    answers = _answers(life)
    if not life.quirk:
        yield from answers
        return
    place = life.name
    for place, mismatches in answers:
        if any(map(_is_deviation, mismatches)):
            yield place, [each for each in mismatches if each.field in _UNTOUCHED_BY_DEVICES]
            return
        yield place, mismatches
    yield place, [Mismatch("quirk", "-", "-", "other devices than upstream's", "the same")]


def _is_deviation(mismatch: Mismatch) -> bool:
    """Return whether other devices are found than upstream finds."""
    return mismatch.field == "devices" or (mismatch.field == "filter" and mismatch.plugin == NAME)


def _answers(life: DeviceLife) -> Iterator[tuple[str, list[Mismatch]]]:
    subject, expected = DeviceCluster(), iter(life.expected)
    for index, op in enumerate(life.ops):
        match op:
            case Schedule():
                entry = next(expected)
                got = subject.schedule(op, entry)
            case Bind():
                entry, got = next(expected), subject.bind(op)
            case Unreserve():
                entry, got = next(expected), subject.unreserve(op)
            case Delete():
                subject.delete(op.kind, op.namespace, op.name)
                continue
            case _:
                subject.apply(op.object)
                continue
        mismatches = entry_mismatches(entry, got)
        # The audit, half of the time if it were made at each step, works all answers out anew.
        if index % 3 == 0 or index == len(life.ops) - 1:
            found = differences(subject.cluster.state)
            mismatches += [Mismatch("audit", "-", "-", "none", each) for each in found]
        yield f"{life.name} op {index}", mismatches


#: Fields of an entry that are compared as they are.
_WHOLE = (
    "preenqueue",
    "skipped",
    "devices",
    "rawScore",
    "postfilter",
    "chosen",
    "held",
    "prebind",
    "events",
    "writes",
    "claims",
    "extendedResourceClaimStatus",
)


#: Fields that are the same whichever devices are found.
_UNTOUCHED_BY_DEVICES = ("preenqueue", "skipped", "prefilter", "held", "audit")


def entry_mismatches(expected: Json, got: Json) -> list[Mismatch]:
    """Return the differences between an entry and the recorded one."""
    expected, got = without_compile_errors(expected), without_compile_errors(got)
    found = decision_mismatches({**expected, "error": expected.get("error") or None}, got)
    return found + [
        Mismatch(field, "-", "-", expected.get(field), got.get(field))
        for field in _WHOLE
        if (expected.get(field) or None) != (got.get(field) or None)
    ]
