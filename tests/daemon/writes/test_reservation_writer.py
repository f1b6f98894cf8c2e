"""Writes of reservations against a server that follows a script."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scheduler.daemon.writes.reservation_writer import ReservationWriter
from scheduler.daemon.writes.sending import Sender
from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.instructions import WriteReservation
from scheduler.engine.model.object_writes import NodeSelection, VolumePromise
from scheduler.engine.model.stimuli import ReservationWritten
from scheduler.engine.model.volumes import PersistentVolume, PersistentVolumeClaim
from tests.daemon.writes.answers import refusal
from tests.support.build import Json
from tests.support.driving import Driver
from tests.support.scripted_server import FakeSleep, Script, client_of, lost, reply, scripted
from tests.support.storage_objects import claim, volume

POD = Driver().pod("p")
V, C = "/api/v1/persistentvolumes/v", "/api/v1/namespaces/default/persistentvolumeclaims/d"
SELECTED = {"volume.kubernetes.io/selected-node": "n1"}
OURS = {"namespace": "default", "name": "c", "uid": "default-c"}
OLD = {**OURS, "uid": "old"}


def _decoded(document: Json, version: str) -> Any:
    document["metadata"]["resourceVersion"] = version
    return KINDS[document["kind"]].decode(json.dumps(document).encode())


def _instruction(promised_before: bool = False) -> WriteReservation:
    """Return the instruction to promise a volume to claim c and select node n1 for claim d."""
    static: PersistentVolumeClaim = _decoded(claim("c", "local"), "3")
    dynamic: PersistentVolumeClaim = _decoded(claim("d", "made"), "4")
    known: PersistentVolume = _decoded(
        volume("v", "local", claimed_by="default/c" if promised_before else None), "5"
    )
    return WriteReservation(POD, "n1", (VolumePromise(known, static), NodeSelection(dynamic, "n1")), number=5)


def stored(version: str, *, ref: Json | None = None, annotations: Json | None = None, uid: str = "") -> Any:
    """Return an answer with an object as the server has it."""
    meta = {"resourceVersion": version, "uid": uid, "annotations": annotations}
    return reply(json.dumps({"metadata": meta, "spec": {"claimRef": ref}}).encode())


MODIFIED = refusal(409, "Conflict", "modified")
DONE, TAKEN = stored("9"), stored("10", annotations=SELECTED, uid="default-d")
FREE = stored("8", annotations={}, uid="default-d")
ANOTHER = stored("8", annotations=SELECTED, uid="another")


async def written(script: Script, instruction: WriteReservation, **options: Any) -> ReservationWritten:
    async with client_of(script) as client:
        writer = ReservationWriter(Sender(client, sleep=FakeSleep(), **options))
        answer = await writer.write(instruction)
        assert not writer._turns
        return answer


#: The answers, the versions that are told, the problem, and the requests: V for a patch of the volume, C of the claim,
#: with a question mark for reading it.
ANSWERS = {
    "all written": ([DONE, TAKEN], ("9", "10"), "", "V C"),
    "another was faster": ([MODIFIED, stored("7")], (), "modified", "V V?"),
    "another claim of that name was faster": ([MODIFIED, stored("7", ref=OLD)], (), "modified", "V V?"),
    "conflict with ourselves": ([MODIFIED, stored("7", ref=OURS), TAKEN], ("7", "10"), "", "V V? C"),
    "the second fails": ([DONE, MODIFIED, FREE], ("9",), "modified", "V C C?"),
    "a claim made anew": ([DONE, MODIFIED, ANOTHER], ("9",), "modified", "V C C?"),
    "answer lost, written": ([lost(), stored("6", ref=OURS), TAKEN], ("6", "10"), "", "V V? C"),
    "answer lost, as before: sent again": ([lost(), stored("5"), DONE, TAKEN], ("9", "10"), "", "V V? V C"),
    "read until it is answered": (
        [refusal(500), refusal(503), stored("5"), DONE, TAKEN],
        ("9", "10"),
        "",
        "V V? V? V C",
    ),
    "deleted": ([refusal(404, message="gone")], (), "gone", "V"),
    "lost, deleted": ([lost(), refusal(404, message="gone")], (), "gone", "V V?"),
    "forbidden": ([refusal(403)], (), "no", "V"),
    "unreadable": ([refusal(500, message="down"), refusal(403)], (), "down", "V V?"),
    "throttled": ([refusal(429), DONE, TAKEN], ("9", "10"), "", "V V C"),
    "busy": ([refusal(429)] * 5, (), "no", "V V V V V"),
}


@pytest.mark.parametrize(("answers", "versions", "problem", "requests"), ANSWERS.values(), ids=ANSWERS)
async def test_a_write_ends_once(
    answers: list[Any], versions: tuple[str, ...], problem: str, requests: str
) -> None:
    async with scripted(*answers) as script:
        assert await written(script, _instruction()) == ReservationWritten(POD.uid, versions, problem, 5)
    sent = [f"{'V' if one.path == V else 'C'}{'?' * (one.method == 'GET')}" for one in script.received]
    assert (" ".join(sent), {one.path for one in script.received} <= {V, C}) == (requests, True)


@pytest.mark.parametrize("promised_before", [False, True])
async def test_writes_say_what_upstream_says_and_which_version_they_are_about(promised_before: bool) -> None:
    async with scripted(DONE, TAKEN) as script:
        await written(script, _instruction(promised_before))
    promise, selection = (json.loads(one.body) for one in script.received)
    own = {} if promised_before else {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}}
    reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "resourceVersion": "3", **OURS}
    assert promise == {"metadata": {"resourceVersion": "5", **own}, "spec": {"claimRef": reference}}
    assert selection == {"metadata": {"resourceVersion": "4", "annotations": SELECTED}}
    assert {one.headers["Content-Type"] for one in script.received} == {"application/merge-patch+json"}
