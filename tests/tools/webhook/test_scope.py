"""Whose pods the webhook looks at, and a webhook that only reports."""

from functools import partial

import pytest

from scheduler.tools.webhook.reviews import Scope
from scheduler.tools.webhook.validating import AntiAffinity, validate
from tests.support import build
from tests.support.build import Json
from tests.tools.webhook.client import Answer, reviewed

_VALIDATE = partial(validate, refused=AntiAffinity.ANY)
_OURS = frozenset({"affinity-scheduler", "ours-too"})


def harmful(scheduler: str = "") -> Json:
    """Return a pod that `_VALIDATE` refuses."""
    affinity = build.affinity(anti_required=[build.term(build.ZONE, build.selector("app=web"))])
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
