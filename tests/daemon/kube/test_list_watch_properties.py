"""Whatever a server and a network do, the published changes add up to the server's state."""

import json
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from scheduler.daemon.kube.changes import Deleted, Synced, Upserted
from scheduler.daemon.kube.list_watch import ListWatch, OpenStream, Pause, Publish, Step
from scheduler.daemon.kube.requests import WatchPath
from scheduler.errors import Gone, Invalid, Unreachable
from tests.daemon.kube.protocol import DUE, arrived, brought, ended, failed
from tests.support.api_bodies import body, bookmark, line, page, pod

PAGE = 2
NAMES = ("a", "b", "c", "d", "e")


class Server:
    """A collection with a history that it can compact; it answers as an API server does."""

    def __init__(self, *, streams_lists):
        self.streams_lists = streams_lists
        self.rv = 10
        self.pods = {}
        #: Line by resourceVersion; older ones are compacted.
        self.log = {}
        self.forgotten = 10
        self.states: dict[int, dict[str, Any]] = {10: {}}

    def put(self, name, *, recreate):
        old = self.pods.get(name)
        if old is not None and recreate:
            self.delete(name)
        self.rv += 1
        uid = old["metadata"]["uid"] if old is not None and not recreate else f"uid-{name}-{self.rv}"
        self.pods[name] = pod(name, self.rv, uid=uid)
        self._remember(line("MODIFIED" if old and not recreate else "ADDED", self.pods[name]))

    def delete(self, name):
        if name in self.pods:
            self.rv += 1
            last = self.pods.pop(name)
            self._remember(line("DELETED", pod(name, self.rv, uid=last["metadata"]["uid"])))

    def _remember(self, text):
        self.log[self.rv] = text
        self.states[self.rv] = dict(self.pods)

    def forget(self):
        self.log.clear()
        self.forgotten = self.rv

    def list(self, token):
        at, start = map(int, token.split(":")) if token else (self.rv, 0)
        if at < self.forgotten:
            return failed(Gone(410, "Expired", ""))
        items = list(self.states[at].values())[start : start + PAGE]
        rest = len(self.states[at]) > start + PAGE
        return arrived(page(*items, rv=at, token=f"{at}:{start + PAGE}" if rest else ""))

    def stream(self, query):
        if "sendInitialEvents" in query:
            if not self.streams_lists:
                return failed(Invalid(422, "Invalid", ""))
            return [*(line("ADDED", item) for item in self.pods.values()), bookmark(self.rv, ends=True)]
        since = int(query["resourceVersion"])
        if since < self.forgotten:
            return failed(Gone(410, "Expired", ""))
        return [text for rv, text in self.log.items() if rv > since]


class Mirror:
    """Applies the published changes and checks each of them."""

    def __init__(self, server):
        self.server = server
        self.version_by_uid = {}
        self.uid_by_key = {}
        self.synced = False

    def apply(self, changes):
        for change in changes:
            match change:
                case Upserted(key=key, uid=uid, object=version):
                    assert self.uid_by_key.setdefault(key, uid) == uid, "told a namesake before its delete"
                    assert self.version_by_uid.get(uid) != version, "told twice"
                    self.version_by_uid[uid] = version
                case Deleted(key=key, uid=uid):
                    assert self.uid_by_key.pop(key) == uid
                    del self.version_by_uid[uid]
                case Synced(resource_version=rv):
                    self.synced = True
                    assert self.version_by_uid == versions(self.server.states[int(rv)])


def versions(pods):
    return {item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for item in pods.values()}


class Run:
    """A list-watch, a server, and the step in progress between them."""

    def __init__(self, *, streams_lists):
        self.server = Server(streams_lists=streams_lists)
        self.mirror = Mirror(self.server)
        self.machine = ListWatch(
            WatchPath("/p"),
            lambda raw: msgspec.json.decode(raw)["metadata"]["resourceVersion"],
            jitter=lambda: 0.5,
        )
        self.step: Step = Pause(0.0)
        #: Lines that the open stream has still to bring, None while none is open; the version up to which it knows.
        self.unread: list[bytes] | None = None
        self.streamed_to = 0

    def feed(self, sign):
        for action in sign(self.machine):
            if isinstance(action, Publish):
                self.mirror.apply(action.changes)
            else:
                self.step, self.unread = action, None

    def answer(self, n_lines):
        if isinstance(self.step, Pause):
            self.feed(DUE)
        elif isinstance(self.step, OpenStream):
            self._flow(dict(self.step.request.query), n_lines)
        else:
            self.feed(self.server.list(dict(self.step.request.query).get("continue", "")))

    def _flow(self, query, n_lines):
        if self.unread is None:
            begun = self.server.stream(query)
            if not isinstance(begun, list):
                self.feed(begun)
                return
            self.unread, self.streamed_to = begun, self.server.rv
        elif self.streamed_to < self.server.forgotten:
            self.disturb("gone")
            return
        else:
            self.unread += [text for rv, text in self.server.log.items() if rv > self.streamed_to]
            self.streamed_to = self.server.rv
        lines, self.unread = self.unread[:n_lines], self.unread[n_lines:]
        if lines:
            self.feed(brought(lines))

    def disturb(self, how):
        if isinstance(self.step, Pause):
            return
        gone = json.loads(body(410, "Expired"))
        match how:
            case "cut":
                self.feed(failed(Unreachable(0, "ConnectionLost", "")))
            case "end" if self.unread is not None:
                self.feed(ended(5.0))
            case "gone" if self.unread is not None:
                self.unread.clear()
                self.streamed_to = self.server.rv
                self.feed(brought([line("ERROR", gone)]))
            case bytes() if self.unread:
                self.unread[0] = how
                self._flow({}, 1)
            case "bookmark" if self.unread == [] and self.streamed_to == self.server.rv:
                self.feed(brought([bookmark(self.server.rv)]))


#: In place of a line.
RUBBISH = [b'{"type":"ADD', b"<html>", b'{"type":"BOOKMARK","object":{}}', b'{"type":"\xff"}']
STEPS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(NAMES), st.booleans()),
    st.tuples(st.just("delete"), st.sampled_from(NAMES)),
    st.tuples(st.just("answer"), st.integers(1, 4)),
    st.tuples(st.just("answer"), st.integers(1, 4)),
    st.tuples(st.just("disturb"), st.sampled_from(["cut", "end", "gone", "bookmark", *RUBBISH])),
    st.tuples(st.just("forget")),
)


@given(streams_lists=st.booleans(), steps=st.lists(STEPS, min_size=20, max_size=60))
def test_published_changes_add_up_to_the_servers_state(streams_lists, steps):
    """
    At every sync mark the told state is the server's at that version; once nothing disturbs any more, the newest.

    On the way nothing is published twice, and no pod before the deletion of the pod of the same name.
    """
    run = Run(streams_lists=streams_lists)
    for name in NAMES:
        run.server.put(name, recreate=False)
    for kind, *arguments in steps:
        match kind:
            case "put":
                run.server.put(arguments[0], recreate=arguments[1])
            case "delete":
                run.server.delete(arguments[0])
            case "answer":
                run.answer(arguments[0])
            case "disturb":
                run.disturb(arguments[0])
            case "forget":
                run.server.forget()
    for _ in range(100):
        run.answer(100)
    assert run.mirror.synced
    assert run.mirror.version_by_uid == versions(run.server.pods)
