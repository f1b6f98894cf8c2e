"""Requests as they are sent, and responses as they are decoded."""

import json

import msgspec
import pytest

from scheduler import errors
from scheduler.daemon.kube import access_reviews, requests, responses
from scheduler.daemon.kube.rate_limit import TokenBucket
from tests.support.api_bodies import body, pod


def test_names_are_escaped():
    assert requests.get_pod("a/b", "..?x").path == "/api/v1/namespaces/a%2Fb/pods/..%3Fx"


def test_times_are_rfc_3339_in_utc():
    """metav1.Time has seconds, MicroTime six decimals."""
    assert requests.second_time(1.9) == "1970-01-01T00:00:01Z"
    assert requests.micro_time(1.25) == "1970-01-01T00:00:01.250000Z"


@pytest.mark.parametrize(
    ("status", "reason", "kind", "unknown"),
    [
        (400, "BadRequest", errors.Invalid, False),
        (401, "Unauthorized", errors.Unauthorized, False),
        (403, "Forbidden", errors.Forbidden, False),
        (404, "NotFound", errors.NotFound, False),
        (409, "AlreadyExists", errors.Conflict, False),
        (410, "Expired", errors.Gone, False),
        (413, "RequestEntityTooLarge", errors.Invalid, False),
        (422, "Invalid", errors.Invalid, False),
        (429, "TooManyRequests", errors.Throttled, False),
        (500, "InternalError", errors.ServerFault, True),
        (504, "Timeout", errors.ServerFault, True),
    ],
)
def test_each_status_has_its_error(status, reason, kind, unknown):
    """With the server's message; the outcome of a write is unknown only after a 5xx."""
    error = responses.api_error(status, body(status, reason, "why"))
    assert (type(error), error.took_effect_unknown) == (kind, unknown)
    assert str(error) == f"{status} {reason}: why"


BODIES = {
    "HTML of a proxy": (b"<html>busy</html>", "<html>busy</html>"),
    "long text is cut": (b"x" * 5000, "x" * 2048),
    "not even text": (b"\xff", "�"),
}


@pytest.mark.parametrize(("text", "message"), BODIES.values(), ids=BODIES)
def test_an_error_without_a_status_object_keeps_the_body(text, message):
    """Load balancers send other formats."""
    error = responses.api_error(503, text)
    assert (error.reason, error.message) == ("ServiceUnavailable", message)


RETRY_AFTER = {
    "header": ("5", {}, 5.0),
    "details": (None, {"retryAfterSeconds": 3}, 3.0),
    "header first": ("5", {"retryAfterSeconds": 3}, 5.0),
    "a date is not read": ("Wed, 21 Oct 2026 07:28:00 GMT", {}, None),
    "nonsense": ("-1", {}, None),
    "neither": (None, {}, None),
}


@pytest.mark.parametrize(("header", "details", "seconds"), RETRY_AFTER.values(), ids=RETRY_AFTER)
def test_the_requested_pause_is_read(header, details, seconds):
    error = responses.api_error(429, body(429, "TooManyRequests", **details), retry_after=header)
    assert error.retry_after_s == seconds


def test_identity_is_read_from_objects_that_are_otherwise_broken():
    meta = responses.decode_meta(json.dumps(pod("a", 7, labels={"x": 1})).encode())
    assert (str(meta.key), meta.uid, meta.resource_version) == ("default/a", "uid-a", "7")


def test_a_pods_node_is_empty_until_it_is_bound():
    """It settles a lost bind."""
    assert responses.decode_written(json.dumps(pod("a", 1)).encode()).spec.node_name == ""
    bound = pod("a", 1) | {"spec": {"nodeName": "n"}}
    assert responses.decode_written(json.dumps(bound).encode()).spec.node_name == "n"
    with pytest.raises(errors.ServerFault, match="not a Pod"):
        responses.decode_written(b"<html>")


NO_UTF_8 = {
    responses.decode_page: b'{"metadata":{"resourceVersion":"\xff"}}',
    responses.decode_lease: b'{"metadata":{},"spec":{"holderIdentity":"\xff"}}',
    responses.decode_written: b'{"metadata":{"uid":"\xff"}}',
    responses.shows_free_lease: b'{"type":"\xff","object":{}}',
    access_reviews.decode_user: b'{"status":{"user":{"username":"\xff"}}}',
}


@pytest.mark.parametrize(("decode", "text"), NO_UTF_8.items(), ids=[each.__name__ for each in NO_UTF_8])
def test_an_answer_that_is_no_utf_8_is_a_fault_of_the_server(decode, text):
    """msgspec 0.19, the oldest that may be installed, raises another error for it than for what is no JSON."""
    with pytest.raises(errors.ServerFault, match="not a "):
        decode(text)


def test_a_token_bucket_allows_a_burst_and_then_its_rate():
    bucket = TokenBucket(qps=10.0, burst=2, now_s=0.0)
    assert [bucket.reserve(0.0) for _ in range(4)] == pytest.approx([0.0, 0.0, 0.1, 0.2])
    assert bucket.reserve(0.2) == pytest.approx(0.1)
    assert bucket.reserve(100.0) == 0.0


def test_errors_are_one_line():
    """Settings errors name source, field, found and expected, whatever the text contains."""
    error = errors.SettingsError("f.yaml", "a.b", "line\nbreak", "x")
    assert str(error) == "f.yaml: a.b: found line break, expected x"
    assert str(errors.SettingsError("--master", "", "'x'", "a URL")) == "--master: found 'x', expected a URL"
    assert str(errors.SettingsError("--for", "", "", "a time")) == "--for: found '', expected a time"
    assert str(errors.InvariantViolation("bad", ("first", "second"))) == "bad\n  first\n  second"


def test_status_in_a_stream_without_a_code_counts_as_a_server_fault():
    """It leads to a pause."""
    assert isinstance(responses.watch_error(msgspec.Raw(b"{}")), errors.ServerFault)
