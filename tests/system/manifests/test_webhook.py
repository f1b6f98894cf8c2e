"""manifests/webhook is consistent and fits the program: names, ports, conditions and rights."""

from __future__ import annotations

import argparse
import copy
import re

import pytest

from scheduler.cli import webhook
from scheduler.engine.model.annotations import AFFINITY, MARKED_NAMESPACES
from scheduler.engine.model.pods import WRITTEN_DELETION_COST
from scheduler.engine.model.unread_names import ANNOTATIONS, LABELS, PREFIX
from scheduler.tools.webhook.mutating import IGNORE
from scheduler.tools.webhook.term_lists import TERM_LISTS
from tests.support.build import Json
from tests.support.kubectl import Kubectl
from tests.support.manifest_files import MANIFESTS, container, one, resources

NAME = "affinity-scheduler-webhook"
FOLDER = MANIFESTS / "webhook"
OBJECTS = resources(FOLDER)
KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


def hook(kind: str, index: int = 0) -> Json:
    found: Json = one(OBJECTS, kind)["webhooks"][index]
    return found


@pytest.fixture(scope="module")
def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    webhook.add_arguments(parser)
    name, *given = container(one(OBJECTS, "Deployment"))["args"]
    assert name == "webhook"
    return parser.parse_args(given)


def test_kustomize_renders_everything():
    assert len(Kubectl().rendered(FOLDER)) == len(OBJECTS)


def test_all_objects_have_one_name_and_namespace(arguments):
    assert (arguments.name, arguments.namespace) == (NAME, NAME)
    for each in OBJECTS:
        assert each["metadata"]["name"] == NAME, each["kind"]
        assert each["metadata"].get("namespace", NAME) == NAME, each["kind"]
    for kind in KINDS:
        service = hook(kind)["clientConfig"]["service"]
        assert (service["name"], service["namespace"]) == (NAME, NAME)


def test_the_service_leads_to_the_ports_of_the_program(arguments):
    ports = {port["name"]: port["containerPort"] for port in container(one(OBJECTS, "Deployment"))["ports"]}
    assert ports == {"https": arguments.webhook_port, "metrics": arguments.port}
    assert {port["targetPort"] for port in one(OBJECTS, "Service")["spec"]["ports"]} == set(ports)
    assert {hook(kind)["clientConfig"]["service"]["port"] for kind in KINDS} == {443}


@pytest.mark.parametrize("kind", KINDS)
def test_an_unavailable_webhook_blocks_no_pods(kind):
    """Failures are ignored, and pods of kube-system and of the webhook are not sent."""
    found = hook(kind)
    assert (found["failurePolicy"], found["sideEffects"]) == ("Ignore", "None")
    assert found["timeoutSeconds"] <= 5
    (left_out,) = found["namespaceSelector"]["matchExpressions"]
    assert (left_out["operator"], set(left_out["values"])) == ("NotIn", {"kube-system", NAME})
    assert one(OBJECTS, "Deployment")["spec"]["replicas"] == 2


def test_the_match_conditions_name_the_annotations_that_the_program_reads():
    """Otherwise the API server would not send such pods."""
    (ours, mutating), (_, validating) = (hook(kind)["matchConditions"] for kind in KINDS)
    assert ours["expression"] == "object.spec.schedulerName in ['affinity-scheduler']"
    (opted_out,) = hook(KINDS[0])["objectSelector"]["matchExpressions"]
    assert (opted_out["key"], opted_out["operator"]) == (IGNORE, "DoesNotExist")
    assert "objectSelector" not in hook(KINDS[1])
    prefix = TERM_LISTS[0].annotation.partition("/")[0] + "/"
    assert all(slot.annotation.startswith(prefix) for slot in TERM_LISTS)
    for expression in (mutating["expression"], validating["expression"]):
        assert f"name.startsWith('{prefix}')" in expression
    assert f"name == '{AFFINITY}'" in mutating["expression"]
    created, updated = validating["expression"].split(" : ")
    (labels,) = re.findall(r"!name\.matches\( '(.*?)'\)", created)
    assert {name for name in ANNOTATIONS if re.search(labels, name)} == LABELS
    assert f"name.startsWith('{PREFIX}') && name != '{WRITTEN_DELETION_COST}'" in updated


def test_reach_is_checked_where_the_default_configuration_does_not_allow_it():
    """The check differs from the other one in its path, its conditions and one requirement on the namespace."""
    check, reach = copy.deepcopy(hook(KINDS[1])), copy.deepcopy(hook(KINDS[1], 1))
    (marked,) = MARKED_NAMESPACES.requirements
    *same, requirement = reach["namespaceSelector"]["matchExpressions"]
    assert same == check["namespaceSelector"]["matchExpressions"]
    assert requirement == {"key": marked.key, "operator": "NotIn", "values": list(marked.values)}
    assert marked.operator == "In"
    assert reach["clientConfig"]["service"].pop("path") == "/validate-reach"
    assert check["clientConfig"]["service"].pop("path") == "/validate"
    ours, condition = reach["matchConditions"]
    assert ours == check["matchConditions"][0]
    assert f"'{AFFINITY}' in object.metadata.annotations" in condition["expression"]
    different = ("name", "namespaceSelector", "matchConditions")
    assert {k: v for k, v in reach.items() if k not in different} == {
        k: v for k, v in check.items() if k not in different
    }
