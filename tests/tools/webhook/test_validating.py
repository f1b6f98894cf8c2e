"""Which pods /validate refuses: harmful anti-affinity and invalid annotations; whose, and if it only reports."""

from __future__ import annotations

import copy
import json
from functools import partial

import pytest

from scheduler.engine.model.annotations import GRACE, MODE
from scheduler.engine.model.fallback import FALLBACK
from scheduler.tools.webhook.reviews import Scope
from scheduler.tools.webhook.validating import AntiAffinity, validate
from tests.support import build
from tests.support.build import Json
from tests.tools.webhook.client import ANNOTATION, OWN, Answer, reach_validated, reviewed, validated
from tests.tools.webhook.test_mutating import ANTI_HARD, ENFORCED, HARD, SOFT

EVERYWHERE: Json = {}


def anti(key: str, namespaces: Json | None, *, kind: str = HARD) -> Json:
    term = build.term(key, build.selector("app=web"))
    if namespaces is not None:
        term["namespaceSelector"] = namespaces
    item = {"weight": 1, "podAffinityTerm": term} if kind == SOFT else term
    return {"podAntiAffinity": {kind: [item]}}


def in_field(affinity: Json) -> Json:
    return build.pod("web-0", affinity=affinity)


def in_annotation(affinity: Json) -> Json:
    pod = build.pod("web-0")
    pod["metadata"]["annotations"] = {OWN: json.dumps(affinity)}
    return pod


@pytest.mark.parametrize("place", [in_field, in_annotation])
@pytest.mark.parametrize(
    ("affinity", "verdicts"),
    [
        # Denied where the setting is off, over all namespaces, any.
        pytest.param(anti(build.HOSTNAME, EVERYWHERE), (0, 0, 0), id="per node"),
        pytest.param(anti(build.ZONE, None), (0, 0, 1), id="per zone, own namespace"),
        pytest.param(anti(build.ZONE, build.selector("team=a")), (0, 0, 1), id="per zone, one team"),
        pytest.param(anti(build.ZONE, build.selector("team in a")), (0, 0, 1), id="per zone, some teams"),
        pytest.param(anti(build.ZONE, build.selector("team")), (0, 0, 1), id="per zone, those with a team"),
        pytest.param(anti(build.ZONE, EVERYWHERE), (0, 1, 1), id="per zone, everywhere"),
        pytest.param(anti(build.ZONE, build.selector("!team")), (0, 1, 1), id="all but those with a label"),
        pytest.param(anti(build.ZONE, build.selector("team notin a")), (0, 1, 1), id="all but one team"),
        pytest.param(
            anti(build.ZONE, build.selector("kubernetes.io/metadata.name")),
            (0, 1, 1),
            id="a label that all have",
        ),
        pytest.param(anti(build.ZONE, EVERYWHERE, kind=SOFT), (0, 0, 0), id="only preferred"),
        pytest.param(
            {"podAffinity": {HARD: [{**build.term(build.ZONE, {}), "namespaceSelector": {}}]}},
            (0, 0, 0),
            id="affinity",
        ),
    ],
)
def test_required_anti_affinity_over_all_namespaces_is_allowed_only_per_node(place, affinity, verdicts):
    found = [validated(place(affinity), refused=setting).status for setting in AntiAffinity]
    assert tuple(int(status is not None) for status in found) == verdicts


def test_enforced_terms_count_as_required():
    assert validated(in_annotation(anti(build.ZONE, EVERYWHERE, kind=ENFORCED))).status is not None


@pytest.mark.parametrize(
    ("setting", "suffix"), [(AntiAffinity.ANY, ""), (AntiAffinity.ALL_NAMESPACES, " over all namespaces")]
)
def test_the_message_is_that_of_the_admission_plugin(setting, suffix):
    """LimitPodHardAntiAffinityTopology, whose rule is `any`."""
    status = validated(in_field(anti(build.ZONE, EVERYWHERE)), refused=setting).status
    assert status is not None
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert status["message"] == (
        'pods "web-0" is forbidden: affinity.PodAntiAffinity.RequiredDuringScheduling has TopologyKey '
        f"{build.ZONE} but only key kubernetes.io/hostname is allowed{suffix}"
    )


@pytest.mark.parametrize(
    ("annotations", "field", "path"),
    [
        pytest.param({OWN: '{"podAffinity": 1}'}, OWN, "$.podAffinity: ", id="ours"),
        pytest.param({ANTI_HARD: '[{"weight": 1}, 2]'}, ANTI_HARD, "$[1]: ", id="a list of kep-3633-alt"),
        pytest.param(
            {OWN: "{}", MODE: "x"},
            MODE,
            'Invalid value: "x": found "x", expected "add" or "replace"',
            id="mode",
        ),
        pytest.param({GRACE: "5m"}, GRACE, 'found "5m", expected seconds from 0 to 999999', id="grace"),
        pytest.param({FALLBACK: "[1]"}, FALLBACK, "$[0]: Expected `object`, got `int`", id="fallback"),
        pytest.param(
            {FALLBACK: '[{"rule": "podAntiAffinity", "topologyKey": "zone", "afterSeconds": 5}]'},
            FALLBACK,
            "$[0]: the pod has no required term of podAntiAffinity by zone",
            id="fallback of no term",
        ),
        pytest.param({GRACE: "-1"}, GRACE, 'found "-1", expected', id="grace below zero"),
    ],
)
def test_invalid_annotations_are_refused_with_the_json_path(annotations, field, path):
    pod = build.pod("web-0")
    pod["metadata"]["annotations"] = annotations
    ((reason, found, message),) = validated(pod, refused=AntiAffinity.OFF).causes
    assert (reason, found) == ("FieldValueInvalid", f"metadata.annotations[{field}]")
    assert path in message


def test_other_annotations_are_not_read():
    pod = in_field(build.affinity())
    pod["metadata"]["annotations"] = {"example.com/affinity": "{", "kep-3633-alt.10h.in/other": "{"}
    assert validated(pod).status is None


@pytest.mark.parametrize("place", [in_field, in_annotation])
def test_a_fallback_that_names_a_required_term_is_allowed(place):
    pod = place(anti(build.HOSTNAME, None))
    entry = {"rule": "podAntiAffinity", "topologyKey": build.HOSTNAME, "afterSeconds": 5}
    pod["metadata"].setdefault("annotations", {})[FALLBACK] = json.dumps([entry])
    assert validated(pod, refused=AntiAffinity.OFF).status is None


# Reach


@pytest.mark.parametrize(
    ("more", "is_refused"),
    [
        pytest.param({}, False, id="own namespace"),
        pytest.param({"namespaces": ["default"]}, False, id="own namespace by name"),
        pytest.param({"namespaces": ["shop"]}, True, id="another"),
        pytest.param({"namespaces": ["default", "shop"]}, True, id="its own and another"),
        pytest.param({"namespaceSelector": {}}, True, id="all"),
        pytest.param({"namespaceSelector": build.selector("a=b")}, True, id="by label"),
    ],
)
@pytest.mark.parametrize("side", ["podAffinity", "podAntiAffinity"])
@pytest.mark.parametrize("kind", [HARD, SOFT, ENFORCED])
def test_terms_by_annotation_about_other_namespaces_are_refused(side, kind, more, is_refused):
    """The API server asks only about namespaces whose annotations may not have them."""
    term = {**build.term(build.ZONE, build.selector("app=web")), **more}
    affinity = {side: {kind: [{"weight": 1, "podAffinityTerm": term} if kind == SOFT else term]}}
    assert (reach_validated(in_annotation(affinity)).status is not None) == is_refused
    assert reach_validated(in_field(affinity)).status is None


def test_the_refusal_of_reach_is_the_schedulers_message():
    status = reach_validated(in_annotation(anti(build.HOSTNAME, EVERYWHERE))).status
    assert status is not None
    assert (status["code"], status["message"]) == (
        403,
        'pods "web-0" is forbidden: annotation affinity-scheduler.io/affinity: a term is about other namespaces, which'
        " annotationNamespaces of the configuration does not allow pods of namespace default",
    )


def test_what_cannot_be_read_is_left_to_the_other_check():
    assert reach_validated(in_annotation({"podAntiAffinity": 1})).status is None


def test_only_an_update_that_changes_the_terms_is_refused_for_their_reach():
    new = in_annotation(anti(build.HOSTNAME, EVERYWHERE))
    assert reach_validated(new, old=in_annotation({"podAntiAffinity": 1})).status is not None
    relabelled = copy.deepcopy(new)
    relabelled["metadata"]["labels"] = {"app": "other"}
    assert reach_validated(relabelled, old=new).status is None


# Updates


BROKEN = {OWN: '{"podAntiAffinity": 1}'}
SOON = {OWN: "{}", GRACE: "soon"}


@pytest.mark.parametrize(
    ("stored", "new", "refused"),
    [
        # Even if the stored pod would be refused now.
        pytest.param(BROKEN, BROKEN, "", id="labels"),
        pytest.param(BROKEN, {OWN: "{"}, OWN, id="terms that cannot be read"),
        pytest.param(BROKEN, {OWN: json.dumps(anti(build.ZONE, EVERYWHERE))}, "pods", id="harmful terms"),
        pytest.param(BROKEN, {**BROKEN, GRACE: "soon"}, GRACE, id="a grace period"),
        pytest.param(BROKEN, {**BROKEN, GRACE: "30"}, "", id="a valid grace period"),
        pytest.param({**SOON, **BROKEN}, SOON, "", id="valid terms beside a grace period that is not"),
        pytest.param({}, {ANNOTATION["topologySpreadConstraints"]: "{"}, "", id="what creation alone reads"),
    ],
)
def test_of_an_update_only_changed_annotations_are_validated(stored, new, refused):
    """Fields of a pod are immutable, but annotations, labels and finalizers may change."""
    old, updated = (build.pod("web-0", annotations=each) for each in (stored, new))
    updated["metadata"] |= {"labels": {"app": "other"}, "finalizers": []}
    status = validated(updated, old=old).status
    assert (status is not None) == bool(refused)
    assert status is None or refused in status["message"]


def test_names_of_ours_that_nothing_reads_are_warned_of() -> None:
    """Also where an update adds them; Kueue's levels only on a pod without a group."""
    misspelt = build.pod("p", annotations={"affinity-scheduler.io/afinity": "{}"})
    warning = (
        "annotation affinity-scheduler.io/afinity has no effect: nothing reads it;"
        " did you mean affinity-scheduler.io/affinity?"
    )
    assert validated(misspelt).warnings == [warning]
    assert validated(misspelt, old=build.pod("p")).warnings == [warning]
    assert validated(misspelt, old=misspelt).warnings == []
    level = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    assert validated(build.pod("p", annotations=level)).warnings == [
        "annotation kueue.x-k8s.io/podset-required-topology has no effect: the pod names no group"
    ]
    grouped = build.pod("p", annotations=level, spec={"schedulingGroup": {"podGroupName": "g"}})
    assert validated(grouped).warnings == []


# Scope

_VALIDATE = partial(validate, refused=AntiAffinity.ANY)
_OURS = frozenset({"affinity-scheduler", "ours-too"})


def harmful(scheduler: str = "") -> Json:
    """Return a pod that `_VALIDATE` refuses."""
    affinity = anti(build.ZONE, None)
    return build.pod("p", affinity=affinity, spec={"schedulerName": scheduler} if scheduler else {})


def answer(scope: Scope, pod: Json) -> Answer:
    return reviewed(scope.applied_to(_VALIDATE), pod)


@pytest.mark.parametrize(
    ("schedulers", "scheduler", "is_refused"),
    [
        (None, "", True),
        (None, "other", True),
        (_OURS, "ours-too", True),
        (_OURS, "other", False),
        (_OURS, "", False),
        (frozenset({"default-scheduler"}), "", True),
    ],
)
def test_pods_of_other_schedulers_are_left_alone(schedulers, scheduler, is_refused):
    """A pod that names no scheduler is the default one's."""
    found = answer(Scope(schedulers), harmful(scheduler))
    assert (found.status is not None) is is_refused
    assert found.warnings == []


def test_a_webhook_that_only_reports_warns_and_allows():
    pod = harmful()
    found = answer(Scope(refuses=False), pod)
    assert (found.pod, found.patch) == (pod, [])
    (warning,) = found.warnings
    assert warning.startswith('would be refused: pods "p" is forbidden: affinity.PodAntiAffinity.Required')
