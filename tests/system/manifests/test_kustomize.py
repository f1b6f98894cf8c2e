"""The manifests as kustomize renders them."""

import pytest

from tests.support.kubectl import Kubectl
from tests.support.manifest_files import MANIFESTS, OWN_NAMESPACE, one

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
