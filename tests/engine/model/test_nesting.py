"""An object that is nested too deeply for the decoder is decoded like any other."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.daemon.kube.responses import (
    decode_event,
    decode_lease,
    decode_meta,
    decode_page,
    decode_version,
    decode_written,
)
from scheduler.engine.framework.kinds import KINDS
from scheduler.engine.model.nesting import KEPT_LEVELS, shallow
from scheduler.engine.model.nodes import decode_node
from scheduler.engine.model.pod_decoder import PodDecoder
from scheduler.tools.explain.priority_classes import priority_class_named
from scheduler.tools.explain.serving import decode_lease as decode_schedulers_lease
from scheduler.tools.webhook.reviews import decode_review
from tests.support import build

#: The API server takes 10,000; 900 is what one decoder gets through and the next may not.
DEPTHS = (900, 1_100, 9_000, 200_000)


def deep(document: build.Json, depth: int) -> bytes:
    """Return the object with managedFields of that depth."""
    fields = '{"f:a\\\\":' * depth + '[{"}":"["}]' + "}" * depth
    managed = [{"manager": 'a"\\', "fieldsV1": "@"}]
    document = {"metadata": {"managedFields": managed, **document["metadata"]}, **document}
    document["metadata"]["managedFields"] = managed
    return json.dumps(document).replace('"@"', fields).encode()


POD = build.pod("p", labels={"app": "a"}, node="n")
LEASE: build.Json = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
READERS: dict[str, tuple[Callable[[bytes], Any], build.Json]] = {
    "pod": (lambda raw: PodDecoder().decode(raw), POD),
    "node": (decode_node, build.node("n", labels={"zone": "z"})),
    "namespace": (KINDS["Namespace"].decode, build.namespace("x", labels={"team": "t"})),
    "service": (KINDS["Service"].decode, build.service("s", {"app": "a"})),
    "replica set": (
        KINDS["ReplicaSet"].decode,
        build.replica_set("r", build.selector("app=a")),
    ),
    "identity": (decode_meta, POD),
    "place": (decode_written, POD),
    "lease": (lambda raw: decode_lease(raw).spec, LEASE),
    "lease of a scheduler": (decode_schedulers_lease, LEASE),
    "class": (
        lambda raw: priority_class_named("c", "--priority-class", lambda _: raw),
        {"metadata": {"name": "c"}, "value": 7},
    ),
    "version": (decode_version, {"metadata": {}, "major": "1", "minor": "36"}),
    "watch event": (lambda raw: _pod_of(decode_event(b'{"type":"ADDED","object":' + raw + b"}").object), POD),
    "list": (
        lambda raw: [
            _pod_of(one)
            for one in decode_page(b'{"metadata":{},"items":[' + raw + b"," + raw + b"]}").items or ()
        ],
        POD,
    ),
    "review": (
        lambda raw: decode_review(
            b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","operation":"CREATE",'
            b'"resource":{"group":"","version":"v1","resource":"pods"},"object":' + raw + b"}}"
        ),
        POD,
    ),
}


def _pod_of(raw: msgspec.Raw) -> object:
    return PodDecoder().decode(raw)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("what", READERS)
def test_it_is_decoded_as_if_the_deep_fields_were_null(what: str, depth: int) -> None:
    read, document = READERS[what]
    expected = read(deep(document, 1))
    assert repr(read(deep(document, depth))) == repr(expected)


@pytest.mark.parametrize("depth", DEPTHS)
def test_it_is_decoded_at_any_stack_depth(depth: int) -> None:
    """Decoders count levels together with Python's frames: at no stack depth may a pod be unreadable."""

    def below(frames: int) -> object:
        return below(frames - 1) if frames else PodDecoder().decode(deep(POD, depth)).name

    for frames in (100, 300, 500):
        assert below(frames) == "p"


_SCALARS = st.sampled_from([1, None, True, "a", '"', "\\", '\\"', "{[", "]}", 'x\\\\"y{', "é\u2028"])
_VALUES: st.SearchStrategy[object] = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(['k"', "{", "\\", "b]"]), inner, max_size=2)
    ),
)


def _cut(value: object, level: int) -> object:
    if not isinstance(value, dict | list):
        return value
    if level > KEPT_LEVELS:
        return None
    if isinstance(value, list):
        return [_cut(one, level + 1) for one in value]
    return {key: _cut(one, level + 1) for key, one in value.items()}


@given(
    value=_VALUES,
    beside=_VALUES,
    depth=st.sampled_from((0, KEPT_LEVELS - 4, KEPT_LEVELS, KEPT_LEVELS + 20)),
    separators=st.sampled_from([(",", ":"), (", ", " : ")]),
    is_ascii=st.booleans(),
)
def test_values_that_are_too_deep_become_null_and_nothing_else_changes(
    value: object, beside: object, depth: int, separators: tuple[str, str], is_ascii: bool
) -> None:
    """Strings may have any quotes, backslashes and brackets."""
    for level in range(depth):
        value = [beside, value] if level % 2 else {"a\\": value, '"': "}"}
    text = json.dumps(value, separators=separators, ensure_ascii=is_ascii)
    assert json.loads(shallow(text.encode())) == _cut(value, 1)


@pytest.mark.parametrize("cut", [b"{" * 500, b"[" * 101, b'{"a":' * 5000 + b'"', b"}" * 300, b'"\\'])
def test_malformed_json_stays_malformed(cut: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(shallow(cut))
