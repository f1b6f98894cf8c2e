"""
Reports placed groups that have lost members and now have too few on nodes; by choice releases them.

    a member is lost --REPORT_AFTER_S--> event, and condition Whole of the PodGroup --enough members again--> condition
                     `--release-after, while a member waits in vain--> the others are evicted, to be placed anew with it

A member that has succeeded is not lost; a group with such a member is no longer watched. A group is released only if
its members have the annotation `RELEASE_AFTER`; their controllers create them again.
"""

from __future__ import annotations

from typing import Final

from scheduler.model.instructions import EmitEvent, Instruction, PatchPodGroup
from scheduler.model.pod_groups import WHOLE, GroupKey, PodGroup
from scheduler.model.pods import Pod
from scheduler.state.pod_groups import PodGroups

#: How long a group may have too few members: one that is replaced comes within seconds.
REPORT_AFTER_S: Final = 30.0

#: Ends the message of a group whose members on nodes are evicted.
RELEASED: Final = "The members on nodes are evicted, to be placed anew with the others."


class LostMembers:
    """Watches the number of members on nodes of every group that was placed."""

    def __init__(self, groups: PodGroups) -> None:
        self._groups = groups
        #: Groups with too few members, and since when; the first is the oldest.
        self._below_since_s: dict[GroupKey, float] = {}
        #: Groups that a decision placed, whole or not yet.
        self._decided: set[GroupKey] = set()
        self._reported: set[GroupKey] = set()
        #: By group with too few members that is to be released: when.
        self._release_at_s: dict[GroupKey, float] = {}
        #: Groups of which a member has succeeded.
        self._ending: set[GroupKey] = set()

    def note_decided(self, key: GroupKey) -> None:
        """Note that a decision placed the group."""
        self._decided.add(key)

    def note(self, key: GroupKey, changed: Pod | None, now_s: float) -> None:
        """Note that this member came, changed or left, or the group's object did. O(1)."""
        if not self._groups.n_placed(key):
            for times in (self._below_since_s, self._release_at_s):
                times.pop(key, None)
            for keys in (self._reported, self._ending, self._decided):
                keys.discard(key)
            return
        if changed is not None and changed.phase == "Succeeded":
            self._ending.add(key)
        group = self._groups.get(key) if changed is None else self._groups.known_by(changed, key)
        if group is not None and self._is_below(key, group.min_count):
            since_s = self._below_since_s.setdefault(key, now_s)
            if changed is not None and changed.group is not None and changed.group.release_after_s:
                self._release_at_s[key] = since_s + changed.group.release_after_s
        else:
            self._below_since_s.pop(key, None)
            self._release_at_s.pop(key, None)

    def _is_below(self, key: GroupKey, min_count: int) -> bool:
        is_placed = key in self._decided or self._groups.is_whole(key)
        if key in self._ending or self._groups.is_released(key) or not is_placed:
            return False
        return 0 < self._groups.n_placed(key) < min_count

    def due(self, now_s: float) -> list[GroupKey]:
        """Return the groups that are to be released if a member waits in vain."""
        return [key for key, at_s in self._release_at_s.items() if at_s <= now_s]

    def take_due(self, key: GroupKey, now_s: float) -> bool:
        """Return whether the group is to be released now. If so, note that this is done."""
        is_due = self._release_at_s.get(key, now_s + 1) <= now_s
        if is_due:
            del self._release_at_s[key]
        return is_due

    def next_wake_s(self, now_s: float) -> float | None:
        """Return when a group is to be reported or released, None if none waits for that. O(groups with too few)."""
        times = [at_s for at_s in self._release_at_s.values() if at_s > now_s]
        times += [
            since_s + REPORT_AFTER_S
            for key, since_s in self._below_since_s.items()
            if key not in self._reported
        ]
        return min(times, default=None)

    def on_time(self, now_s: float) -> list[Instruction]:
        """Return the events and conditions of groups that have had too few members for a while, once each."""
        instructions: list[Instruction] = []
        for key, since_s in self._below_since_s.items():
            if key in self._reported:
                continue
            if since_s + REPORT_AFTER_S > now_s:
                break
            self._reported.add(key)
            group, placed = self._groups.get(key), list(self._groups.placed(key))
            if group is None or not placed:
                continue
            text = (
                f"pod group {key.text} was placed and has lost members: {len(placed)} of the {group.min_count} that it"
                " needs are on nodes"
            )
            instructions.append(EmitEvent(placed[0], "Warning", "PodGroupNotWhole", "Scheduling", text))
            instructions += _condition(group, text, is_whole=False)
        return instructions

    def is_reported(self, key: GroupKey) -> bool:
        """Return whether the group has been reported as one with too few members."""
        return key in self._reported

    def on_bound(self, key: GroupKey, group: PodGroup, n_bound: int) -> list[Instruction]:
        """Return the condition of a group that has enough members again."""
        if key not in self._reported or n_bound < group.min_count:
            return []
        self._reported.discard(key)
        return _condition(group, "", is_whole=True)


def _condition(group: PodGroup, message: str, *, is_whole: bool) -> list[Instruction]:
    """Return the condition if the status is ours to write."""
    if not group.api_version:
        return []
    return [PatchPodGroup(group, is_whole, "Whole" if is_whole else "MembersLost", message, WHOLE)]
