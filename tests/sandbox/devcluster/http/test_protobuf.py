"""Bodies in protobuf read as the JSON that they stand for, or are refused whole."""

import pytest

from scheduler.sandbox.devcluster.http.protobuf import decoded
from scheduler.sandbox.devcluster.status import StatusError


def varint(number):
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value % (1 << 64))
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def message(**numbered):
    """Encode fields named f1, f2 ...; a list repeats its field."""
    parts = [
        (int(name[1:]), one) for name, v in numbered.items() for one in (v if isinstance(v, list) else [v])
    ]
    return b"".join(field(number, value) for number, value in parts)


def body(kind, raw, api_version="v1"):
    return b"k8s\x00" + message(f1=message(f1=api_version, f2=kind), f2=raw, f3="", f4="")


def entry(key, value):
    return message(f1=key, f2=value)


#: As Go writes them: unset strings, structs and times of a value type are there, and empty.
BLANK_META = message(f1="web", f2="", f3="", f4="", f5="", f6="", f7=0, f8=b"")


@pytest.mark.parametrize(
    ("raw", "kind", "fields"),
    [
        pytest.param(message(f1=BLANK_META, f2=b"", f3=message(f1="")), "Namespace", {}, id="blank fields are absent"),
        pytest.param(
            message(f1=BLANK_META, f2=[entry("a", "1"), entry("b", "")], f3=entry("c", b"\x00\xff")), "ConfigMap",
            {"data": {"a": "1", "b": ""}, "binaryData": {"c": "AP8="}}, id="maps, and bytes as base64",
        ),
        pytest.param(message(f1=BLANK_META, f2=-5, f3=0, f4="low"), "PriorityClass",
                     {"value": -5, "description": "low"}, id="negative numbers"),
        pytest.param(
            message(f1=0, f2=message(f1="u"), f4="Foreground", f5=["All"]), "DeleteOptions",
            {"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}, "propagationPolicy": "Foreground",
             "dryRun": ["All"]},
            id="a pointer to zero is zero, not absent",
        ),
        pytest.param(
            message(f1=BLANK_META, f2=message(f1=message(f1=1, f2=0, f3="25%"), f3=message(f1=0, f2=1, f3=""))),
            "PodDisruptionBudget", {"spec": {"minAvailable": "25%", "maxUnavailable": 1}},
            id="percentages and numbers",
        ),
    ],
)  # fmt: skip
def test_an_object_reads_as_its_json(raw, kind, fields):
    own = {
        "kind": kind,
        "apiVersion": "v1",
        **({} if kind == "DeleteOptions" else {"metadata": {"name": "web"}}),
    }
    assert decoded(body(kind, raw)) == own | fields


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        pytest.param(b"{}", 400, id="no protobuf"),
        pytest.param(b"k8s\x00\x0a\x7f", 400, id="cut amid a field"),
        pytest.param(b"k8s\x00" + b"\xff" * 20, 400, id="an endless number"),
        pytest.param(body("Namespace", message(f1=7)), 400, id="a number in place of a message"),
        pytest.param(body("LimitRange", b""), 415, id="a kind that is not read"),
        pytest.param(
            body("Deployment", message(f2=message(f3=message(f2=message(f1=message(f1="data")))))),
            415,
            id="a field that is not read",
        ),
    ],
)
def test_protobuf_with_unknown_fields_is_refused(raw, code):
    with pytest.raises(StatusError) as refused:
        decoded(raw)
    assert refused.value.code == code
