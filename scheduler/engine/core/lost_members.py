"""
Reports placed groups that have lost members and now have too few on nodes; by choice releases them.

    a member is lost --REPORT_AFTER_S--> event, and condition Whole of the PodGroup --enough members again--> condition
                     `--release-after, while a member waits in vain--> the others are evicted, to be placed anew with it

A member that has succeeded is not lost; a group with such a member is no longer watched. A group is released only if
its members have the annotation `RELEASE_AFTER`; their controllers create them again.

After a restart, the members say as much: a group with its minimum on nodes was placed, and a group with fewer on nodes,
beside as many pending members as it lacks, has lost some. Its times begin then.
"""

from __future__ import annotations

from typing import Final

from scheduler.engine.model.instructions import EmitEvent, Instruction, PatchPodGroup
from scheduler.engine.model.pod_groups import WHOLE, GroupKey, PodGroup
from scheduler.engine.model.pods import Pod
from scheduler.engine.state.pod_groups import PodGroups

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
        #: Groups that a decision placed, whole or not yet, here or before a restart.
        self._decided: set[GroupKey] = set()
        self._reported: set[GroupKey] = set()
        #: Groups with too few members that are to be released, and when they are tried.
        self._release_at_s: dict[GroupKey, float] = {}
        #: Groups whose time to be released has come, until they are tried.
        self._release_due: set[GroupKey] = set()
        #: Groups with a member that has succeeded.
        self._ending: set[GroupKey] = set()

    def note_decided(self, key: GroupKey) -> None:
        """Note that a decision placed the group."""
        self._decided.add(key)

    def note(self, key: GroupKey, changed: Pod | None, now_s: float) -> None:
        """Note that this member came, changed or left, or the group's object did. O(1)."""
        if not self._groups.n_placed(key):
            self._end(key)
            self._groups.note_left(key)
            for keys in (self._reported, self._ending, self._decided):
                keys.discard(key)
            return
        if changed is not None and changed.phase == "Succeeded":
            self._ending.add(key)
        if min_count := self._groups.minimum_bound(key):
            self._groups.note_whole(key, min_count)
        group = self._groups.get(key) if changed is None else self._groups.known_by(changed, key)
        if group is not None and self._groups.n_ready(key) >= group.min_count:
            # As many members as it needs are on nodes: a decision has placed it, here or elsewhere.
            self._decided.add(key)
        if group is None or not self._is_below(key, group.min_count):
            self._end(key)
            return
        since_s = self._below_since_s.setdefault(key, now_s)
        reference = None if changed is None else changed.group
        if reference is not None and reference.release_after_s and key not in self._release_due:
            self._release_at_s[key] = since_s + reference.release_after_s

    def _end(self, key: GroupKey) -> None:
        """Note that the group has enough members, leaves its nodes, or is watched no more."""
        self._below_since_s.pop(key, None)
        self._release_at_s.pop(key, None)
        self._release_due.discard(key)

    def _is_below(self, key: GroupKey, min_count: int) -> bool:
        placed_with = self._groups.placed_with(key)
        is_placed = key in self._decided or placed_with
        if key in self._ending or self._groups.is_released(key) or not is_placed:
            return False
        # A group whose minimum was raised since it was placed has lost no member by that.
        return self._groups.n_placed(key) < (min(min_count, placed_with) or min_count)

    def take_due(self, key: GroupKey) -> bool:
        """Return whether the group, which has no places, is to be released now. If so, note that it is."""
        is_due = key in self._release_due
        if is_due:
            self._end(key)
            self._groups.release(key)
        return is_due

    def next_wake_s(self) -> float | None:
        """Return when a group is to be reported or released, None without one."""
        since_s = (at_s for key, at_s in self._below_since_s.items() if key not in self._reported)
        return min([*self._release_at_s.values(), *(at_s + REPORT_AFTER_S for at_s in since_s)], default=None)

    def take_reached(self, now_s: float) -> list[GroupKey]:
        """Return the groups whose time to be released came, each once; a member has to be tried in vain first."""
        reached = [key for key, at_s in self._release_at_s.items() if at_s <= now_s]
        for key in reached:
            del self._release_at_s[key]
        self._release_due.update(reached)
        return reached

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

    def on_whole(self, key: GroupKey, group: PodGroup) -> list[Instruction]:
        """Note that the group has enough members; return its condition if it had too few."""
        if key not in self._reported:
            return []
        self._reported.discard(key)
        return _condition(group, "", is_whole=True)


def _condition(group: PodGroup, message: str, *, is_whole: bool) -> list[Instruction]:
    """Return the condition if the status is ours to write."""
    if not group.api_version:
        return []
    return [PatchPodGroup(group, is_whole, "Whole" if is_whole else "MembersLost", message, WHOLE)]
