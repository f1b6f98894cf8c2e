"""Properties of the webhook: a second run changes nothing, and any bytes get an answer or a one-line error."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.engine.model.annotations import MIRROR
from scheduler.tools.webhook.mutating import mutate
from scheduler.tools.webhook.reviews import MalformedReviewError, decode_review, encode_response
from scheduler.tools.webhook.term_lists import TERM_LISTS
from scheduler.tools.webhook.validating import AntiAffinity, validate
from tests.support import build
from tests.support.build import Json
from tests.tools.webhook.client import ANNOTATION, MERGED, OWN, mutated, review, validated
from tests.tools.webhook.test_mutating import ENFORCED, HARD, SOFT

KEYS = ["app", "tier", "tenant", "absent", "Bad key"]
KINDS = ("In", "NotIn", "Exists")
keys = st.lists(st.sampled_from(KEYS), max_size=2)
labels = st.dictionaries(st.sampled_from(KEYS[:3]), st.sampled_from(["a", "b", ""]))


def _selectors() -> st.SearchStrategy[Any]:
    expression = st.fixed_dictionaries(
        {"key": st.sampled_from(KEYS[:4]), "operator": st.sampled_from(KINDS)},
        optional={"values": st.lists(st.sampled_from(["a", "b"]), max_size=2)},
    )
    optional = {"matchLabels": labels, "matchExpressions": st.lists(expression, max_size=2)}
    return st.none() | st.fixed_dictionaries({}, optional=optional)


terms = st.fixed_dictionaries(
    {"topologyKey": st.sampled_from([build.ZONE, build.HOSTNAME])},
    optional={
        "labelSelector": _selectors(),
        "namespaceSelector": _selectors(),
        "namespaces": st.lists(st.sampled_from(["n1", "n2"]), max_size=2),
        "matchLabelKeys": keys,
        "mismatchLabelKeys": keys,
    },
)
weighted = st.fixed_dictionaries({"weight": st.integers(1, 100), "podAffinityTerm": terms})
constraints = st.fixed_dictionaries(
    {
        "topologyKey": st.sampled_from([build.ZONE, build.HOSTNAME, "rack"]),
        "maxSkew": st.integers(1, 3),
        "whenUnsatisfiable": st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
    },
    optional={"labelSelector": _selectors(), "matchLabelKeys": keys, "minDomains": st.none() | st.just(2)},
)
by_kind = {HARD: st.lists(terms, max_size=2), SOFT: st.lists(weighted, max_size=2)}
sides = st.fixed_dictionaries({}, optional=by_kind)
own_sides = st.fixed_dictionaries({}, optional={**by_kind, ENFORCED: st.lists(terms, max_size=2)})
affinities = st.fixed_dictionaries({}, optional={"podAffinity": sides, "podAntiAffinity": sides})


@st.composite
def pods(draw: st.DrawFn) -> Json:
    """Return a pod with terms in fields, in annotations of kep-3633-alt, and in ours."""
    pod = build.pod("p", labels=draw(labels), affinity=draw(st.none() | affinities))
    spread = draw(st.lists(constraints, max_size=1))
    if spread:
        pod["spec"]["topologySpreadConstraints"] = spread
    kinds: dict[str, st.SearchStrategy[Any]] = {
        ANNOTATION[term_list.name]: st.lists(
            constraints if not term_list.side else terms if term_list.kind == HARD else weighted, max_size=2
        )
        for term_list in TERM_LISTS
    }
    kinds[OWN] = st.fixed_dictionaries({}, optional={"podAffinity": own_sides, "podAntiAffinity": own_sides})
    annotations = draw(st.fixed_dictionaries({}, optional=kinds))
    pod["metadata"]["annotations"] = {name: json.dumps(value) for name, value in annotations.items()}
    if draw(st.booleans()):
        pod["metadata"]["annotations"][MIRROR] = "true"
    return pod


@settings(max_examples=80, deadline=None)
@given(pod=pods(), merges_fields=st.booleans())
def test_a_merged_pod_stays_unchanged(pod, merges_fields):
    answer = mutated(pod, merges_fields=merges_fields)
    if answer.pod is None:
        assert answer.causes
        return
    again = mutated(answer.pod, merges_fields=merges_fields)
    assert (again.status, again.patch) == (None, [])


@settings(max_examples=80, deadline=None)
@given(pod=pods(), changed=labels)
def test_a_second_run_with_other_labels_gives_the_same_as_one_run_with_them(pod, changed):
    """Except for the order of terms, which has no meaning."""
    first = mutated(pod).pod
    direct = copy.deepcopy(pod)
    direct["metadata"]["labels"] = changed
    at_once = mutated(direct)
    if first is None:
        return
    first["metadata"]["labels"] = changed
    later = mutated(first)
    assert (later.pod is None) == (at_once.pod is None)
    if later.pod is not None and at_once.pod is not None:
        assert _unordered(later.pod) == _unordered(at_once.pod)


def _unordered(pod: Json) -> tuple[Any, ...]:
    affinity = pod["spec"].get("affinity") or {}
    lists = [
        affinity.get(term_list.side, {}).get(term_list.kind) or []
        for term_list in TERM_LISTS
        if term_list.side
    ]
    lists.append(pod["spec"].get("topologySpreadConstraints") or [])
    own = _plain(pod["metadata"]["annotations"].get(OWN, "null"))
    marker = pod["metadata"]["annotations"].get(MERGED)
    texts = [[json.dumps(_plain(json.dumps(item)), sort_keys=True) for item in items] for items in lists]
    return own, marker, [sorted(each) for each in texts]


def _plain(text: str) -> Json:
    """Return the JSON without nulls and empty lists: a second run does not know whether a term had these or nothing."""
    plain: Json = json.loads(
        text, object_hook=lambda found: {k: v for k, v in found.items() if v not in (None, [])}
    )
    return plain


@settings(max_examples=50, deadline=None)
@given(pod=pods())
def test_validate_can_read_every_pod_that_mutate_allows(pod):
    answer = mutated(pod)
    if answer.pod is not None:
        status = validated(answer.pod, refused=AntiAffinity.OFF).status
        assert status is None


# Any bytes at all

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for name, each in inside for place in _places(each, (*path, name)))]


@st.composite
def mutants(draw: st.DrawFn) -> bytes:
    """Return a review with some parts replaced by other values, also inside annotations."""
    pod = draw(pods())
    annotations = pod["metadata"]["annotations"]
    for name in annotations:
        if draw(st.booleans()):
            annotations[name] = json.dumps(_mutant(draw, json.loads(annotations[name])))
    annotations |= draw(
        st.fixed_dictionaries({}, optional={MERGED: st.text(max_size=8) | JSON.map(json.dumps)})
    )
    asked = json.loads(
        review(pod, operation=draw(st.sampled_from(["CREATE", "UPDATE"])), old=draw(st.none() | pods()))
    )
    for _ in range(draw(st.integers(0, 3))):
        asked = _mutant(draw, asked)
    return json.dumps(asked).encode()


def _mutant(draw: st.DrawFn, value: Any) -> Any:
    path = draw(st.sampled_from(_places(value)))
    if not path:
        return draw(JSON)
    place = value
    for name in path[:-1]:
        place = place[name]
    if draw(st.booleans()):
        del place[path[-1]]
    else:
        place[path[-1]] = draw(JSON)
    return value


def answer_to(body: bytes, merges_fields: bool) -> None:
    """Send the body to both webhooks: they answer or raise a one-line error. Any other error is a bug."""
    try:
        asked = decode_review(body)
    except MalformedReviewError as error:
        assert "\n" not in str(error)
        return
    for verdict in (mutate(asked, merges_fields=merges_fields), validate(asked, refused=AntiAffinity.ANY)):
        response = json.loads(encode_response(asked.uid, verdict))["response"]
        assert response["uid"] == asked.uid
        if not response["allowed"]:
            status = response["status"]
            assert 400 <= status["code"] < 500
            assert status["message"]


@settings(max_examples=80, deadline=None)
@given(body=mutants(), merges_fields=st.booleans())
def test_any_mutated_review_is_answered(body, merges_fields):
    answer_to(body, merges_fields)


@settings(max_examples=80, deadline=None)
@given(body=st.binary(max_size=200))
def test_any_bytes_are_answered(body):
    answer_to(body, merges_fields=True)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"[" * 100_000, id="deep lists"),
        pytest.param(b'{"request":{"uid":"u","object":' + b'{"a":' * 100_000, id="deep objects"),
        pytest.param(b'{"request":{"uid":"\\ud800"}}', id="half a surrogate pair"),
        pytest.param(b'{"request":{"uid":"\xff"}}', id="no UTF-8"),
        pytest.param(
            b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"u"}}',
            id="v1beta1",
        ),
        pytest.param(b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}', id="no request"),
    ],
)
def test_a_body_that_is_no_review_is_an_error(body):
    with pytest.raises(MalformedReviewError):
        decode_review(body)


@pytest.mark.parametrize("odd", [[[]], [{}], [None], {}, 1, "app"])
def test_a_field_of_a_wrong_type_is_left_to_the_server(odd):
    """The API server never sends such a pod, but other clients might."""
    term = {"topologyKey": build.ZONE, "labelSelector": {}, "matchLabelKeys": odd, "mismatchLabelKeys": odd}
    answer_to(review(build.pod(affinity=build.affinity(anti_required=[term, odd]))), merges_fields=True)


def test_other_objects_are_allowed():
    """A webhook configuration may send too much."""
    asked = json.loads(review(build.pod()))
    for change in (
        {"resource": {"group": "apps", "version": "v1", "resource": "deployments"}},
        {"subResource": "status"},
    ):
        body = json.dumps({**asked, "request": {**asked["request"], **change, "object": ["whatever"]}})
        found = decode_review(body.encode())
        assert found.pod is None
        assert json.loads(encode_response(found.uid, mutate(found, merges_fields=True)))["response"][
            "allowed"
        ]


def test_the_refusal_of_another_kind_is_one_line() -> None:
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "Admission\nReview", "request": {"uid": "u"}}
    with pytest.raises(MalformedReviewError) as refused:
        decode_review(json.dumps(body).encode())
    assert str(refused.value) == (
        "$: found admission.k8s.io/v1 Admission\\nReview, expected admission.k8s.io/v1 AdmissionReview"
    )
