"""The list-watch protocol as lists of signs and actions."""

import pytest

from scheduler.daemon.assembly.watched_kinds import LIVE_PODS
from scheduler.daemon.kube.changes import Deleted, Interrupted, Malformed, Synced
from scheduler.daemon.kube.list_watch import ITEMS_PER_STEP, Pause
from scheduler.errors import Gone, Invalid, NotFound, ServerFault, Silent, Throttled, Unreachable
from tests.daemon.kube.protocol import (
    DUE,
    arrived,
    brought,
    down,
    ended,
    failed,
    list_watch,
    play,
    synced,
    up,
)
from tests.support.api_bodies import bookmark, broken, line, page, pod, status


def test_an_empty_collection_is_synced_at_once():
    """Go writes null for no items."""
    machine = list_watch()
    machine.on_due()
    empty = b'{"metadata":{"resourceVersion":"3"},"items":null}'
    assert [[Synced("3")], ("watch", "3")] == play(machine, arrived(empty))


def test_events_that_bring_nothing_new_are_not_published():
    machine = synced(list_watch(), pod("a", 1))
    gone = [line("DELETED", pod("unknown", 2)), line("DELETED", pod("a", 11, uid="another"))]
    assert play(machine, brought([line("ADDED", pod("a", 1)), *gone])) == []


GONE_KIND = NotFound(404, "NotFound", "the server could not find the requested resource")


@pytest.mark.parametrize("watch_list", [False, True])
def test_a_collection_that_the_server_has_no_more_is_published_as_empty(watch_list):
    machine = list_watch(watch_list=watch_list, is_absence=lambda error: isinstance(error, NotFound))

    def listed(rv):
        if watch_list:
            return brought([line("ADDED", pod("a", 1)), bookmark(rv, ends=True)])
        return arrived(page(pod("a", 1), rv=rv))

    play(machine, DUE, listed(10))
    asks = ("stream list",) if watch_list else ("ask", "")
    [[interrupted], step] = play(machine, failed(GONE_KIND))
    assert (interrupted.relists, step) == (True, asks)
    [[gone, absent], pause] = play(machine, failed(GONE_KIND))
    assert (gone, absent.error, absent.relists) == (down("a"), GONE_KIND, False)
    assert pause == ("pause", 0.375)
    assert play(machine, DUE) == [asks]
    [[absent], pause] = play(machine, failed(GONE_KIND))
    assert (absent.error, pause) == (GONE_KIND, ("pause", 0.75))
    assert [asks, [up("a", 1), Synced("20")]] == play(machine, DUE, listed(20))[:2]


def test_a_404_about_pods_deletes_none():
    """No API server is without them: something in between answers."""
    machine = synced(list_watch(), pod("a", 1))
    [[interrupted], pause] = play(machine, failed(GONE_KIND))
    assert (interrupted.relists, pause) == (False, ("pause", 0.375))
    assert play(machine, DUE) == [("watch", "10")]


def test_a_streamed_list_of_a_server_that_is_behind_is_read_in_pages():
    """It says when to ask again. The next list is streamed once more: the next server may be ahead."""
    machine = list_watch(watch_list=True)
    machine.on_due()
    play(machine, brought([line("ADDED", pod("a", 1))]))
    behind = ServerFault(504, "Timeout", "Too large resource version: 12, current: 10", retry_after_s=1.0)
    [[interrupted], pause] = play(machine, failed(behind))
    assert (interrupted.error, pause) == (behind, ("pause", 1.05))
    assert play(machine, DUE) == [("ask", "")]
    assert [[Synced("12")], ("watch", "12")] == play(machine, arrived(page(pod("a", 1), rv=12)))
    assert play(machine, failed(Gone(410, "Expired", "")))[-1] == ("stream list",)


def test_a_relist_that_fails_midway_publishes_nothing_until_it_completes():
    machine = synced(list_watch(), pod("a", 1), pod("b", 2))
    machine.on_failure(Gone(410, "Expired", ""))
    assert play(machine, arrived(page(pod("a", 11), token="t"))) == [("ask", "t")]
    [[interrupted], pause] = play(machine, failed(Unreachable(0, "ConnectionLost", "")))
    assert (interrupted.retry_in_s, pause) == (0.375, ("pause", 0.375))
    assert play(machine, DUE) == [("ask", "t")]
    [_, pause] = play(machine, failed(Gone(410, "Expired", "continue token")))
    assert pause == ("pause", 0.375)
    assert play(machine, DUE) == [("ask", "")]
    assert [[up("a", 11), down("b"), Synced("30")], ("watch", "30")] == play(
        machine, arrived(page(pod("a", 11), rv=30))
    )


def test_relists_without_progress_pause_ever_longer():
    """The first 410 is followed by a list at once; a server that always sends 410 gets growing pauses."""
    machine = synced(list_watch(jitter=1.0))
    pauses = []
    for _ in range(10):
        step = machine.on_failure(Gone(410, "Expired", ""))[-1]
        if isinstance(step, Pause):
            pauses.append(step.seconds)
            machine.on_due()
        machine.on_page(page(rv=20))
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_five_server_faults_in_a_row_lead_to_a_relist():
    """The server may never serve the last version again."""
    machine = synced(list_watch())
    refused = failed(ServerFault(504, "Timeout", "Too large resource version"))
    for _ in range(4):
        assert play(machine, refused)[-1][0] == "pause"
        assert play(machine, DUE) == [("watch", "10")]
    assert play(machine, refused)[-1] == ("ask", "")
    assert play(machine, arrived(page(rv=5))) == [[Synced("5")], ("watch", "5")]


def test_a_watch_event_resets_the_pauses():
    machine = synced(list_watch(jitter=1.0))
    machine.on_failure(ServerFault(500, "InternalError", ""))
    machine.on_failure(ServerFault(500, "InternalError", ""))
    machine.on_lines([bookmark(20)])
    assert play(machine, failed(ServerFault(503, "ServiceUnavailable", "")))[-1] == ("pause", 0.5)


def test_a_refused_connection_leads_to_a_relist():
    """The new server may have another history, in which the last version means another state."""
    machine = synced(list_watch(), pod("p", 5))
    play(machine, failed(Unreachable(0, "ConnectionLost", "reset")), DUE)
    refused = failed(Unreachable(0, "ConnectionRefused", ""))
    assert play(machine, refused)[-1] == ("ask", "")
    assert play(machine, refused)[-1] == ("pause", 0.75)
    assert play(machine, DUE) == [("ask", "")]
    assert play(machine, arrived(page(rv=5))) == [[down("p"), Synced("5")], ("watch", "5")]


def test_an_error_event_other_than_gone_resumes_the_watch():
    machine = synced(list_watch())
    lines = [
        line("ADDED", pod("a", 11)),
        line("ERROR", status(500, "InternalError")),
        line("ADDED", pod("b", 12)),
    ]
    [told, [interrupted], pause] = play(machine, brought(lines))
    assert [up("a", 11)] == told
    assert isinstance(interrupted.error, ServerFault)
    assert pause[0] == "pause"
    assert play(machine, DUE) == [("watch", "11")]


PAUSES = {
    "Retry-After plus jitter": (7.0, 7.0 * 1.05),
    "bounded": (100_000.0, 120.0 * 1.05),
    "never less than the backoff": (0.0, 0.375),
}


@pytest.mark.parametrize(("asked_s", "pause_s"), PAUSES.values(), ids=PAUSES)
def test_retry_after_is_honoured(asked_s, pause_s):
    machine = synced(list_watch())
    step = machine.on_failure(Throttled(429, "TooManyRequests", "", retry_after_s=asked_s))[-1]
    assert pytest.approx(pause_s) == step.seconds


ENDED_WATCHES = {
    "at once and silent: counts as a failure": (False, 0.1, True),
    "at once, but after an event": (True, 0.1, False),
    "after a while": (False, 5.0, False),
}


@pytest.mark.parametrize(("heard", "lived_s", "pauses"), ENDED_WATCHES.values(), ids=ENDED_WATCHES)
def test_a_watch_that_ends_is_opened_again_but_never_in_a_hot_loop(heard, lived_s, pauses):
    machine = synced(list_watch())
    if heard:
        machine.on_lines([bookmark(11)])
    step = machine.on_stream_end(lived_s)[-1]
    assert pauses == isinstance(step, Pause)


def test_a_malformed_object_affects_no_other():
    """Other objects are published, the watch continues, and the version advances."""
    machine = list_watch()
    machine.on_due()
    [changes, _] = play(machine, arrived(page(pod("a", 1), broken("b", 2), pod("c", 3))))
    assert [up("a", 1), up("c", 3), Synced("10")] == [c for c in changes if not isinstance(c, Malformed)]
    [malformed] = [c for c in changes if isinstance(c, Malformed)]
    assert malformed.key == "default/b"
    assert "labels" in malformed.error

    [[again, ok]] = play(
        machine, brought([line("MODIFIED", broken("a", 11)), line("MODIFIED", pod("c", 12))])
    )
    assert ("default/a", up("c", 12)) == (again.key, ok)
    assert play(machine, ended(9.0)) == [("watch", "12")]


def test_a_malformed_object_is_published_once_per_version():
    """A relist that still has it publishes nothing; repaired, it is upserted; gone, it is deleted."""
    machine = synced(list_watch(), broken("b", 2))
    machine.on_failure(Gone(410, "Expired", ""))
    assert [[Synced("20")], ("watch", "20")] == play(machine, arrived(page(broken("b", 2), rv=20)))
    assert [[up("b", 21)]] == play(machine, brought([line("MODIFIED", pod("b", 21))]))


NAMELESS = {
    "name of the wrong type": line("ADDED", {"metadata": {"name": 7, "resourceVersion": "11"}}),
    "no name": line("ADDED", {"metadata": {"resourceVersion": "11"}}),
    "no metadata": line("ADDED", {"kind": "Pod"}),
    "not an object": line("ADDED", []),
    "an event of unknown type, as newer servers may have": line("RENAMED", pod("b", 11)),
}


@pytest.mark.parametrize("event", NAMELESS.values(), ids=NAMELESS)
def test_an_object_without_a_readable_name_is_published_without_a_key(event):
    machine = synced(list_watch())
    [[malformed, ok]] = play(machine, brought([event, line("ADDED", pod("a", 12))]))
    assert (None, up("a", 12)) == (malformed.key, ok)


def test_an_unreadable_line_leads_to_a_relist():
    """Its content is lost, and only a list can replace it. What came before it is published."""
    machine = synced(list_watch())
    lines = [line("ADDED", pod("a", 11)), b'{"type":"ADDED","object":{"meta', line("ADDED", pod("b", 12))]
    actions = play(machine, brought(lines))
    assert (actions[0], actions[-1]) == ([up("a", 11)], ("ask", ""))


def test_an_unreadable_page_is_rerequested():
    machine = list_watch()
    machine.on_due()
    [[interrupted], pause] = play(machine, arrived(page(pod("a", 1))[:-5]))
    assert (ServerFault, "pause") == (type(interrupted.error), pause[0])
    assert play(machine, DUE) == [("ask", "")]


def test_initial_events_are_published_as_they_arrive_and_end_with_the_marked_bookmark():
    machine = list_watch(watch_list=True)
    assert play(machine, DUE) == [("stream list",)]
    assert [[up("a", 1)]] == play(machine, brought([line("ADDED", pod("a", 1)), bookmark(5)]))
    told = play(
        machine,
        brought([line("ADDED", pod("b", 2)), bookmark(9, ends=True), line("MODIFIED", pod("a", 11))]),
    )
    assert [[up("b", 2), Synced("9"), up("a", 11)]] == told
    assert play(machine, ended(300.0)) == [("watch", "11")]


def test_a_silent_watch_is_resumed_and_the_second_silence_published():
    machine = synced(list_watch(), pod("a", 1))
    machine.on_lines([bookmark(11)])
    silence = Silent(0, "Silent", "nothing came")
    assert play(machine, failed(silence)) == [("watch", "11")]
    ((interrupted,), (_, pause_s)) = play(machine, failed(silence))
    assert interrupted == Interrupted(silence, pause_s)


@pytest.mark.parametrize("code", [400, 422])
def test_a_server_without_watchlist_is_listed_in_pages_from_then_on(code):
    """The refusal is remembered: the next relist uses pages too."""
    machine = list_watch(watch_list=True)
    machine.on_due()
    refusal = failed(Invalid(code, "Invalid", "sendInitialEvents is forbidden"))
    assert play(machine, refusal) == [("ask", "")]
    machine.on_page(page())
    assert play(machine, failed(Gone(410, "Expired", "")))[-1] == ("ask", "")


BREAKS = {
    "ended": ended(300.0),
    "silent": failed(Unreachable(0, "Silent", "")),
    "error event": brought([line("ERROR", status(504, "Timeout"))]),
}


@pytest.mark.parametrize("event", BREAKS.values(), ids=BREAKS)
def test_initial_events_that_break_off_start_over_after_a_pause(event):
    """Published objects stay; an object that the second stream lacks was deleted."""
    machine = list_watch(watch_list=True)
    machine.on_due()
    machine.on_lines([line("ADDED", pod("a", 1)), line("ADDED", pod("b", 2))])
    assert play(machine, event)[-1][0] == "pause"
    assert play(machine, DUE) == [("stream list",)]
    assert [[down("b"), Synced("9")]] == play(
        machine, brought([line("ADDED", pod("a", 1)), bookmark(9, ends=True)])
    )


def test_requests_carry_selectors_bookmarks_and_a_spread_time_out():
    """The exact queries, with the paths of kube-scheduler's informers."""
    machine = list_watch(resource=LIVE_PODS, jitter=0.5)
    [ask] = machine.on_due()
    selector = "fieldSelector=status.phase%21%3DSucceeded"
    assert f"/api/v1/pods?{selector}&limit=500" == ask.request.target
    follow = machine.on_page(page())[-1]
    expected = f"{selector}&watch=true&allowWatchBookmarks=true&resourceVersion=10&timeoutSeconds=450"
    assert f"/api/v1/pods?{expected}" == follow.request.target
    [begin] = list_watch(watch_list=True, resource=LIVE_PODS).on_due()
    expected = f"{selector}&watch=true&allowWatchBookmarks=true&sendInitialEvents=true"
    assert (
        f"/api/v1/pods?{expected}&resourceVersionMatch=NotOlderThan&timeoutSeconds=450"
        == begin.request.target
    )


def test_a_relist_in_pieces_is_published_in_one_batch():
    machine = synced(list_watch(), pod("lost", 1), *(pod(f"p{n}", 1) for n in range(ITEMS_PER_STEP)))
    play(machine, failed(Gone(410, "Expired", "too old")))
    assert play(machine, arrived(page(*(pod(f"p{n}", 2) for n in range(ITEMS_PER_STEP))))) == [("pause", 0.0)]
    [batch, _] = play(machine, DUE)
    assert [change for change in batch if isinstance(change, Deleted)] == [down("lost")]
    assert len(batch) == ITEMS_PER_STEP + 2
