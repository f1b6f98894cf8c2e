"""The manifests as kustomize renders them."""

import pytest

from scheduler.daemon.settings.loading import parse_settings
from tests.support.kubectl import Kubectl
from tests.support.manifest_files import MANIFESTS, OWN_NAMESPACE, named, one

CLUSTER_SCOPED = {"Namespace", "ClusterRole", "ClusterRoleBinding", "FlowSchema"}
PLACES = [
    pytest.param(MANIFESTS, "kube-system", id="kube-system"),
    pytest.param(OWN_NAMESPACE, "affinity-scheduler", id="own namespace"),
]


@pytest.mark.parametrize(("folder", "namespace"), PLACES)
def test_everything_is_in_one_namespace(folder, namespace):
    objects = Kubectl().rendered(folder)
    for each in objects:
        expected = None if each["kind"] in CLUSTER_SCOPED else namespace
        assert each["metadata"].get("namespace") == expected, each["kind"]
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        (subject,) = one(objects, kind)["subjects"]
        assert subject["namespace"] == namespace


@pytest.mark.parametrize(("folder", "namespace"), PLACES)
def test_the_pod_mounts_the_configuration_whose_lease_the_role_names(folder, namespace):
    """kustomize renames the ConfigMap, and would also rename a Lease of the same name in the role."""
    objects = Kubectl().rendered(folder)
    (volume,) = one(objects, "Deployment")["spec"]["template"]["spec"]["volumes"]
    configuration = named(objects, "ConfigMap")[volume["configMap"]["name"]]
    (text,) = configuration["data"].values()
    election = parse_settings(text, "ConfigMap").configuration.leader_election
    role = one(objects, "Role")
    names = {name for rule in role["rules"] for name in rule.get("resourceNames", [])}
    assert names == {election.resource_name}
    assert role["metadata"]["namespace"] == election.resource_namespace == namespace


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
