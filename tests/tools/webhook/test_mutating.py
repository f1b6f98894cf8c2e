"""How /mutate merges and refuses: recorded admissions, the example of kep-3633-alt, and our annotation."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import build
from tests.support.build import Json
from tests.tools.webhook.client import ANNOTATION, MERGED, OWN, annotated, mutated, without_key_lists

RECORDED = Path(__file__).resolve().parents[2] / "data" / "admission.jsonl.gz"
HARD, SOFT = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
ENFORCED = "requiredDuringSchedulingRequiredDuringExecution"
ANTI_HARD = ANNOTATION[f"podAntiAffinity.{HARD}"]
SPREAD = ANNOTATION["topologySpreadConstraints"]
FIELDS = ("affinity", "topologySpreadConstraints")
WEIGHT_OF_ZERO = "Invalid value: 0: must be in the range 1-100"

#: As its README has them.
README_ANNOTATION = "kep-3633-alt.10h.in/podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution"
README_TERMS = """
  [
    {
      "labelSelector": {"matchLabels": {"app": "nginx"}},
      "topologyKey": "topology.kubernetes.io/zone",
      "matchLabelKeys": ["pod-template-hash"]
    }
  ]
"""


def recorded(outcome: str) -> list[Any]:
    """Return the recorded admissions with this outcome, without timeouts."""
    with gzip.open(RECORDED, "rt") as lines:
        entries = [json.loads(line) for line in lines]
    kept = [e for e in entries if outcome in e and e[outcome].get("code") != 504]
    assert len(kept) >= 100
    return kept


def declared(pod: Json) -> Json:
    """Return the fields of the spec that the webhook writes, unless they are empty."""
    return {name: pod["spec"][name] for name in FIELDS if pod["spec"].get(name)}


def pod_with(annotations: Json, *, labels: Json | None = None, **settings: Any) -> Json:
    pod = build.pod("web-0", labels=labels or {"app": "web", "tier": "front"}, **settings)
    texts = {
        name: value if isinstance(value, str) else json.dumps(value) for name, value in annotations.items()
    }
    pod["metadata"]["annotations"] = texts
    return pod


def term(*keys: str, mismatch: tuple[str, ...] = (), selects: str = "app=web") -> Json:
    made = build.term(build.ZONE, build.selector(selects))
    return {
        **made,
        **({"matchLabelKeys": [*keys]} if keys else {}),
        **({"mismatchLabelKeys": [*mismatch]} if mismatch else {}),
    }


def expressions(term: Json) -> list[tuple[str, str, list[str]]]:
    found = term["labelSelector"].get("matchExpressions", [])
    return [(e["key"], e["operator"], e.get("values", [])) for e in found]


# What Kubernetes does to fields


def test_terms_moved_into_annotations_are_stored_as_a_real_server_stored_them_in_fields():
    """Except for the key lists: a server that knows them would merge again."""
    for entry in recorded("stored"):
        answer = mutated(annotated(entry["pod"]))
        assert answer.pod is not None, (entry["name"], answer.status)
        expected = {name: value for name, value in without_key_lists(entry["stored"]).items() if value}
        assert declared(answer.pod) == expected, entry["name"]


def test_terms_moved_into_annotations_are_refused_as_a_real_server_refused_them_in_fields():
    """With the same code, reason, message and causes."""
    for entry in recorded("refused"):
        answer, expected = mutated(annotated(entry["pod"])), entry["refused"]
        assert answer.status is not None, entry["name"]
        assert answer.status["details"]["causes"] == expected["causes"], entry["name"]
        for name in ("code", "reason", "message"):
            assert answer.status[name] == expected[name], entry["name"]


def test_merge_fields_merges_the_pods_own_fields():
    """Merged keys leave the lists; the others stay."""
    for entry in recorded("stored"):
        labels = entry["pod"]["metadata"].get("labels") or {}
        answer = mutated(entry["pod"], merges_fields=True)
        assert answer.pod is not None, (entry["name"], answer.status)
        expected = {
            name: value for name, value in without_key_lists(entry["stored"], labels).items() if value
        }
        assert declared(answer.pod) == expected, entry["name"]
        assert mutated(answer.pod, merges_fields=True).patch == [], entry["name"]


def test_merged_fields_are_refused_for_invalid_key_lists():
    """The API server itself reports other errors of fields."""
    for entry in recorded("refused"):
        expected = entry["refused"]["causes"]
        status = mutated(entry["pod"], merges_fields=True).status
        found = status["details"]["causes"] if status else []
        assert [cause for cause in expected if cause in found] == found, entry["name"]
        about_keys = [cause for cause in expected if "LabelKeys" in cause["field"] + cause["message"]]
        assert [cause for cause in about_keys if cause not in found] == [], entry["name"]


def test_by_default_fields_are_not_merged():
    for entry in recorded("stored"):
        assert mutated(entry["pod"]).patch == []


def test_an_extremely_long_list_is_not_merged():
    """It would delay other requests."""
    pod = build.pod(labels={"tier": "a"}, affinity=build.affinity(anti_required=[term("tier")] * 1025))
    assert mutated(pod, merges_fields=True).patch == []


def test_a_refusal_names_at_most_a_hundred_errors():
    bad = {"labelSelector": {}, "topologyKey": build.ZONE, "matchLabelKeys": ["b d"] * 500}
    assert len(mutated(pod_with({ANTI_HARD: [bad]})).causes) == 100


# kep-3633-alt


def test_the_example_of_kep_3633_alt_works_unchanged():
    labels = {"app": "nginx", "pod-template-hash": "UNEXPECTABLEVALUE"}
    answer = mutated(pod_with({README_ANNOTATION: README_TERMS}, labels=labels))
    (term,) = answer.stored["spec"]["affinity"]["podAntiAffinity"][HARD]
    assert term == {
        "labelSelector": {
            "matchLabels": {"app": "nginx"},
            "matchExpressions": [
                {"key": "pod-template-hash", "operator": "In", "values": ["UNEXPECTABLEVALUE"]}
            ],
        },
        "topologyKey": "topology.kubernetes.io/zone",
    }
    assert answer.stored["metadata"]["annotations"][README_ANNOTATION] == README_TERMS


def test_terms_are_added_after_the_pods_own_terms():
    own = term(selects="app=db")
    pod = pod_with({ANTI_HARD: [term("tier")]}, affinity=build.affinity(anti_required=[own]))
    pod["spec"]["affinity"]["nodeAffinity"] = {"kept": "as it is"}
    answer = mutated(pod)
    affinity = answer.stored["spec"]["affinity"]
    assert affinity["nodeAffinity"] == {"kept": "as it is"}
    first, second = affinity["podAntiAffinity"][HARD]
    assert first == own
    assert expressions(second) == [("tier", "In", ["front"])]


@pytest.mark.parametrize("value", ["true", "false", ""])
def test_pods_with_the_ignore_label_are_not_changed(value):
    labels = {"app": "web", "kep-3633-alt.10h.in/ignore": value}
    assert mutated(pod_with({ANTI_HARD: "no JSON", OWN: "no JSON"}, labels=labels)).patch == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("", "$: Input data was truncated", id="empty"),
        pytest.param("[{]", "$: JSON is malformed", id="no JSON"),
        pytest.param("{}", "Expected `array | null`, got `object`", id="no list"),
        pytest.param('[{"labelSelector": 1}]', "$[0].labelSelector: Expected", id="a selector of a number"),
        pytest.param('[{"topologyKey": ["a"]}]', "$[0].topologyKey: Expected `str`, got `array`", id="keys"),
        pytest.param('["x"]', "$[0]: Expected `object`, got `str`", id="a term that is a text"),
        pytest.param("[" + "{}," * 64 + "{}]", "65 items, expected at most 64", id="too many"),
        pytest.param("[" + " " * 65536 + "]", "65538 bytes, expected at most 65536", id="too long"),
        pytest.param('[{"x":' + "[" * 5000 + "]" * 5000 + "}]", "recursion", id="too deep"),
    ],
)
def test_an_invalid_annotation_is_refused_with_the_json_path(text, problem):
    answer = mutated(pod_with({ANTI_HARD: text}))
    ((reason, field, message),) = answer.causes
    assert (reason, field) == ("FieldValueInvalid", f"metadata.annotations[{ANTI_HARD}]")
    assert problem in message
    assert len(message) < 300


def test_absent_and_null_terms_are_no_terms():
    answer = mutated(pod_with({ANTI_HARD: "null", SPREAD: "[]"}))
    assert (answer.patch, answer.warnings) == ([], [])


def test_null_and_empty_fields_are_left_out_as_the_server_does():
    """Otherwise a later run would not recognise the term."""
    written = {**term("tier"), "namespaces": [], "namespaceSelector": {}, "mismatchLabelKeys": None}
    written["labelSelector"]["matchExpressions"] = []
    answer = mutated(pod_with({ANTI_HARD: [written]}))
    (stored,) = answer.stored["spec"]["affinity"]["podAntiAffinity"][HARD]
    assert stored["namespaceSelector"] == {}
    assert set(stored) == {"labelSelector", "topologyKey", "namespaceSelector"}


def test_a_null_number_or_text_is_refused_as_the_server_refuses_one_that_is_absent():
    (weight,) = mutated(pod_with({ANNOTATION[f"podAffinity.{SOFT}"]: '[{"weight": null}]'})).causes[:1]
    assert weight[1:] == (f"spec.affinity.podAffinity.{SOFT}[0].weight", WEIGHT_OF_ZERO)
    constraint = {**build.spread(build.ZONE, build.selector("app=web")), "whenUnsatisfiable": None}
    ((reason, field, _),) = mutated(pod_with({SPREAD: [constraint]})).causes
    assert (reason, field) == (
        "FieldValueNotSupported",
        "spec.topologySpreadConstraints[0].whenUnsatisfiable",
    )


def test_duplicate_constraints_are_refused_in_fields_and_annotations():
    """For one in a field and one in the annotation, upstream's error names the first."""
    pod = pod_with(
        {SPREAD: [build.spread(build.ZONE, build.selector("app=web"))]},
        spread=[build.spread(build.ZONE, build.selector("app=web"))],
    )
    assert [field for _, field, _ in mutated(pod).causes] == [
        "spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}"
    ]


def test_invalid_fields_are_left_to_the_server():
    """The API server refuses them with its own message."""
    wrong = build.affinity(anti_required=[{"topologyKey": ""}])
    answer = mutated(pod_with({ANTI_HARD: [term("tier")]}, affinity=wrong))
    assert len(answer.stored["spec"]["affinity"]["podAntiAffinity"][HARD]) == 2


def test_warnings_name_merged_labels_and_unknown_fields():
    odd = {
        **term("tier", "absent"),
        "topologyKeys": ["a"],
        "labelSelector": {"matchLabel": {}, "matchLabels": {"a": "b"}},
    }
    answer = mutated(pod_with({ANTI_HARD: [odd]}))
    assert answer.warnings == [
        f"{ANTI_HARD}: 1 added to spec.affinity.podAntiAffinity.{HARD}, merged tier=front",
        f"{ANTI_HARD}: unknown field $[0].topologyKeys",
        f"{ANTI_HARD}: unknown field $[0].labelSelector.matchLabel",
    ]


def test_a_warning_is_one_short_line_of_ascii():
    odd = {**term("tier"), "é\n" + "x" * 500: 1}
    for warning in mutated(pod_with({ANTI_HARD: [odd]})).warnings:
        assert len(warning) <= 256
        assert warning.isascii()
        assert warning.isprintable()


# Run again


def test_a_second_run_adds_no_term_that_stands_twice_again_and_warns_of_nothing():
    answer = mutated(pod_with({ANTI_HARD: [term("tier"), term("tier")]}))
    assert answer.patch
    again = mutated(answer.stored)
    assert (again.patch, again.warnings) == ([], [])


@pytest.mark.parametrize("text", ["", "[]", '{"tier": 1}', "[" * 5000])
def test_an_invalid_record_of_merged_labels_is_refused(text):
    answer = mutated(pod_with({ANTI_HARD: [term("tier")], MERGED: text}))
    assert [field for _, field, _ in answer.causes] == [f"metadata.annotations[{MERGED}]"]


# Ours


def test_our_annotation_gets_merged_selectors_and_stays_an_annotation():
    """For all three kinds of terms. Key lists and mode stay."""
    own = {
        "podAntiAffinity": {
            HARD: [{**term("tier"), "maxPodsPerDomain": 2}],
            ENFORCED: [term(mismatch=("tier",))],
            SOFT: [{"weight": 5, "podAffinityTerm": term("app", "absent", selects="x=y")}],
        },
        "nodeAffinity": {HARD: {"nodeSelectorTerms": [{"matchFields": []}]}},
    }
    pod = pod_with({OWN: own, "affinity-scheduler.io/affinity-mode": "replace"})
    answer = mutated(pod)
    assert answer.stored["spec"] == pod["spec"]
    annotations = answer.stored["metadata"]["annotations"]
    assert annotations["affinity-scheduler.io/affinity-mode"] == "replace"
    expected = copy.deepcopy(own)
    anti: Any = expected["podAntiAffinity"]
    anti[HARD][0]["labelSelector"]["matchExpressions"] = [_expression("tier", "In", "front")]
    anti[ENFORCED][0]["labelSelector"]["matchExpressions"] = [_expression("tier", "NotIn", "front")]
    anti[SOFT][0]["podAffinityTerm"]["labelSelector"]["matchExpressions"] = [_expression("app", "In", "web")]
    assert json.loads(annotations[OWN]) == expected
    assert json.loads(annotations[MERGED]) == {"app": "web", "tier": "front"}
    assert answer.warnings == [f"{OWN}: merged tier=front,app=web into its selectors"]


def _expression(key: str, operator: str, value: str) -> Json:
    return {"key": key, "operator": operator, "values": [value]}


def test_our_annotation_without_key_lists_is_not_changed():
    """Not one byte."""
    text = ' { "podAffinity" : {} } '
    assert mutated(pod_with({OWN: text})).patch == []


@pytest.mark.parametrize(
    ("own", "field", "problem"),
    [
        pytest.param("{", "", "$: Input data was truncated", id="no JSON"),
        pytest.param({"podAffinty": {}}, "", "$: Object contains unknown field `podAffinty`", id="misspelt"),
        pytest.param(
            {"podAffinity": {HARD: [{"topologyKey": ""}]}},
            "",
            f"$.podAffinity.{HARD}[0].topologyKey",
            id="no key",
        ),
        pytest.param(
            {"podAffinity": {HARD: [term("app")]}},
            f".podAffinity.{HARD}[0][0]",
            'Invalid value: "app": exists in both matchLabelKeys and labelSelector',
            id="a key that the selector has",
        ),
        pytest.param(
            {"podAntiAffinity": {ENFORCED: [term("b d")]}},
            f".podAntiAffinity.{ENFORCED}[0].matchLabelKeys[0]",
            "name part must consist of",
            id="a bad key",
        ),
        pytest.param('{"nodeAffinity":{"x":' + "[" * 5000, "", "$.nodeAffinity: ", id="too deep"),
    ],
)
def test_our_annotation_is_refused_as_by_the_scheduler_or_kubernetes(own, field, problem):
    answer = mutated(pod_with({OWN: own}))
    ((reason, path, message),) = answer.causes
    assert (reason, path) == ("FieldValueInvalid", f"metadata.annotations[{OWN}]{field}")
    assert problem in message
