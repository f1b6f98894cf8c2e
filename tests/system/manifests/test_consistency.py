"""The manifests are consistent and fit the program: names, selectors, ports, flags, configuration, versions."""

import tomllib
from pathlib import PurePosixPath

import msgspec
import pytest

from scheduler.daemon.loop import app
from scheduler.daemon.port import listener, status_server
from scheduler.daemon.settings.loading import load_settings
from scheduler.tools.enforcer import loop as enforcer
from tests.support.kubectl import Kubectl
from tests.support.manifest_files import (
    BASE,
    MANIFESTS,
    OWN_NAMESPACE,
    ROOT,
    container,
    kustomization,
    named,
    one,
    resources,
)

OBJECTS = resources(BASE)
DEPLOYMENT = one(OBJECTS, "Deployment")
POD = DEPLOYMENT["spec"]["template"]
CONTAINER = container(DEPLOYMENT)

#: What installs the scheduler; other folders install other things.
FOLDERS = (MANIFESTS, BASE, OWN_NAMESPACE, OWN_NAMESPACE / "scheduler", MANIFESTS / "monitoring")
PROGRAMS = pytest.mark.parametrize(
    "folder", [BASE, MANIFESTS / "enforcer", MANIFESTS / "webhook"], ids=lambda folder: folder.name
)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(MANIFESTS)))
def test_a_kustomization_lists_every_file_beside_it_but_pages_and_pictures(folder):
    content = kustomization(folder)
    generated = [name for each in content.get("configMapGenerator", []) for name in each["files"]]
    listed = {PurePosixPath(name.split("=")[-1]) for name in (*content["resources"], *generated)}
    assert all((folder / name).exists() for name in listed)
    beside = {
        PurePosixPath(path.name)
        for path in folder.iterdir()
        if path.is_file() and path.suffix not in {".md", ".png"}
    }
    assert beside == {name for name in listed if (folder / name).is_file()} | {
        PurePosixPath("kustomization.yaml")
    }


def test_only_the_pod_gets_a_token():
    assert one(OBJECTS, "ServiceAccount")["automountServiceAccountToken"] is False
    assert POD["spec"]["automountServiceAccountToken"] is True


def test_probes_and_the_service_reach_what_the_program_serves():
    # StatusServer and Prometheus come from outside of the pod.
    assert {"--bind-address=0.0.0.0", f"--port={CONTAINER['ports'][0]['containerPort']}"} <= {
        *CONTAINER["args"]
    }
    served = status_server.new_application(render=lambda: b"", configz=lambda: "", ready={})
    paths = {resource.canonical for resource in served.router.resources()}
    (port,) = CONTAINER["ports"]
    asked = {name: probe["httpGet"] for name, probe in CONTAINER.items() if name.endswith("Probe")}
    assert set(asked) == {"startupProbe", "livenessProbe", "readinessProbe"}
    for get in asked.values():
        assert get["path"] in paths
        assert (get["port"], get["scheme"]) == (port["name"], "HTTPS")
    assert asked["readinessProbe"]["path"] == "/readyz"
    (of_service,) = one(OBJECTS, "Service")["spec"]["ports"]
    assert (of_service["port"], of_service["targetPort"]) == (port["containerPort"], port["name"])


def test_the_configuration_is_the_default_one():
    shipped = load_settings(str(BASE / "configuration.yaml"))
    assert shipped == load_settings(str(ROOT / "config" / "affinity-scheduler.yaml"))
    assert shipped.notes == ()


def test_own_namespace_differs_only_in_the_namespace_of_the_lease():
    folder = OWN_NAMESPACE / "scheduler"
    namespace = kustomization(folder)["namespace"]
    settings = load_settings(str(folder / "configuration.yaml"))
    base = load_settings(str(BASE / "configuration.yaml"))
    moved = msgspec.structs.replace(base.configuration.leader_election, resource_namespace=namespace)
    assert settings == base.changed(leader_election=moved)
    assert namespace in named(resources(OWN_NAMESPACE), "Namespace")


def test_flow_schemas_name_the_account_in_its_namespace():
    schemas = named(resources(OWN_NAMESPACE), "FlowSchema")
    subject = {
        "name": POD["spec"]["serviceAccountName"],
        "namespace": kustomization(OWN_NAMESPACE / "scheduler")["namespace"],
    }
    assert len(schemas) == 2
    for schema in schemas.values():
        (rule,) = schema["spec"]["rules"]
        assert rule["subjects"] == [{"kind": "ServiceAccount", "serviceAccount": subject}]


def test_the_image_has_the_version_of_the_program():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert CONTAINER["image"] == f"{project['name']}:{project['version']}"


@pytest.mark.parametrize(
    ("folder", "stop_s"),
    [
        pytest.param(BASE, app._STOP_BINDS_S + app._STOP_EVENTS_S, id="scheduler"),
        pytest.param(
            MANIFESTS / "enforcer", enforcer._STOP_EVICTION_S + enforcer._STOP_EVENTS_S, id="enforcer"
        ),
    ],
)
def test_the_termination_grace_period_is_long_enough(folder, stop_s):
    pod = one(resources(folder), "Deployment")["spec"]["template"]["spec"]
    assert stop_s + listener.DRAIN_S < pod["terminationGracePeriodSeconds"]


@PROGRAMS
def test_selectors_match_the_pods_and_the_budget_lets_a_drain_evict_one_at_a_time(folder):
    objects = resources(folder)
    deployment, budget = one(objects, "Deployment")["spec"], one(objects, "PodDisruptionBudget")["spec"]
    service = {"matchLabels": one(objects, "Service")["spec"]["selector"]}
    for selector in (deployment["selector"], budget["selector"], service):
        assert selector["matchLabels"].items() <= deployment["template"]["metadata"]["labels"].items()
    assert ("minAvailable" in budget, budget["maxUnavailable"]) == (False, 1)


def test_several_instances_use_leader_election_and_different_nodes():
    assert DEPLOYMENT["spec"]["replicas"] > 1
    assert load_settings(str(BASE / "configuration.yaml")).configuration.leader_election.leader_elect
    assert not any(argument.startswith("--leader-elect") for argument in CONTAINER["args"])
    (spread,) = POD["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"].items() <= POD["metadata"]["labels"].items()
    assert spread["topologyKey"] == "kubernetes.io/hostname"


# As kustomize renders them

CLUSTER_SCOPED = {"Namespace", "ClusterRole", "ClusterRoleBinding", "FlowSchema"}


@pytest.mark.parametrize(
    ("folder", "namespace"), [(MANIFESTS, "kube-system"), (OWN_NAMESPACE, "affinity-scheduler")]
)
def test_everything_is_in_one_namespace(folder, namespace):
    objects = Kubectl().rendered(folder)
    for each in objects:
        expected = None if each["kind"] in CLUSTER_SCOPED else namespace
        assert each["metadata"].get("namespace") == expected, each["kind"]
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        (subject,) = one(objects, kind)["subjects"]
        assert subject["namespace"] == namespace


def test_monitoring_is_found_by_the_operator_of_prometheus_and_by_grafana():
    folder = MANIFESTS / "monitoring"
    objects = Kubectl().rendered(folder)
    of_operator = [
        each["apiVersion"] for each in objects if each["kind"] in ("PrometheusRule", "ServiceMonitor")
    ]
    assert of_operator == ["monitoring.coreos.com/v1"] * 2
    configuration = one(objects, "ConfigMap")
    assert configuration["metadata"]["name"] == "affinity-scheduler-dashboard"
    assert configuration["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert configuration["data"] == {"affinity-scheduler.json": (folder / "dashboard.json").read_text()}
