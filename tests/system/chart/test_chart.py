"""The Helm chart, rendered and linted by Helm: it installs the same as kustomize, and its values work."""

from __future__ import annotations

import json
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from scheduler.daemon.assembly.profiles import exempt_namespaces
from scheduler.daemon.settings.loading import parse_settings
from tests.proof.chaos.release import COMMIT_OF_0_1_0
from tests.support.build import Json
from tests.support.manifest_files import BASE, MANIFESTS, ROOT, container, documents, named, one, resources

helm = pytest.importorskip(
    "helm_python", reason="helm-python-sdk is not installed: no wheel for this platform"
)

CHART = MANIFESTS / "chart"
REBALANCE = MANIFESTS / "enforcer" / "rebalance.yaml"
DELETION_COSTS = MANIFESTS / "enforcer" / "deletion-costs.yaml"
ENFORCER, WEBHOOK = "affinity-scheduler-enforcer", "affinity-scheduler-webhook"
SCRAPER = "affinity-scheduler-scraper"
COMPONENTS = ("scheduler", "enforcer", "webhook")
CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
EVERYTHING: Json = {
    "enforcer": {"enabled": True},
    "networkPolicy": {"enabled": True},
    "serviceMonitor": {"enabled": True},
}
#: Labels that only the chart sets.
HELMS = (
    "app.kubernetes.io/instance",
    "app.kubernetes.io/version",
    "app.kubernetes.io/managed-by",
    "helm.sh/chart",
)


@pytest.fixture(scope="module")
def chart() -> Iterator[Any]:
    with helm.Chart.load(CHART) as chart:
        yield chart


def rendered(chart: Any, values: Json | None = None, *, namespace: str = "kube-system") -> list[Json]:
    """Return the objects that these values install; the webhook too, unless they say otherwise."""
    values = dict(values or {})
    values["webhook"] = {"enabled": True, **values.get("webhook", {})}
    files = chart.render(values, name="affinity-scheduler", namespace=namespace)
    manifests = (text for path, text in files.items() if path.endswith(".yaml"))
    return [each for text in manifests for each in yaml.safe_load_all(text) if each]


def names(objects: list[Json]) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in objects}


def alike(value: Any, *ignored: str) -> Any:
    """Return an object without Helm's additions and without the ignored fields."""
    if isinstance(value, dict):
        own = {name: each for name, each in value.items() if name not in (*HELMS, *ignored)}
        return {name: alike(each, *ignored) for name, each in own.items() if not name.startswith("checksum/")}
    return [alike(each, *ignored) for each in value] if isinstance(value, list) else value


def test_helm_lint_finds_no_problem():
    report = helm.lint(CHART, strict=True)
    assert [m["error"] for m in report["messages"]] == ["icon is recommended"]
    assert report["errors"] == []


def test_the_chart_has_the_programs_version(chart):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert chart.metadata["appVersion"] == project["version"]
    assert container(named(rendered(chart), "Deployment")[WEBHOOK])["image"].endswith(
        f":{project['version']}"
    )


def test_the_schema_describes_every_value(chart):
    definitions = chart.schema["definitions"]

    def compare(values: Json, properties: Json, path: str) -> None:
        assert set(values) == set(properties) - {"global"}, path
        for name, value in values.items():
            part = properties[name]
            part = {**definitions.get(part.get("$ref", "").rpartition("/")[2], {}), **part}
            assert part.get("description"), f"{path}.{name}"
            if not part.get("additionalProperties", True) and isinstance(value, dict) and value:
                compare(value, part["properties"], f"{path}.{name}")

    compare(chart.values, chart.schema["properties"], "")


# The same as kustomize


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_component_is_that_of_the_manifests(chart, component):
    folder = BASE if component == "scheduler" else MANIFESTS / component
    namespace = WEBHOOK if component == "webhook" else "kube-system"
    ours = rendered(chart, {each: {"enabled": each == component} for each in COMPONENTS}, namespace=namespace)
    theirs = [each for each in resources(folder) if each["kind"] != "Namespace"]
    # kustomize adds what these lack.
    added = () if component == "webhook" else ("namespace",)
    for kind, name in sorted(names(theirs)):
        expected, found = named(theirs, kind)[name], named(ours, kind)[name]
        assert alike(found, *added) == alike(expected, *added), (kind, name)
    more = names(ours) - names(theirs)
    assert {kind for kind, _ in more} == (set() if component == "webhook" else {"ConfigMap"})
    for _, name in more:
        (text,) = named(ours, "ConfigMap")[name]["data"].values()
        assert yaml.safe_load(text) == yaml.safe_load((folder / "configuration.yaml").read_text())


def test_the_chart_has_no_role_for_users():
    """Or it could not be installed after the folders that have them, which name them for every installation."""
    folders = [each for name in ("explain", "shadow") for each in resources(MANIFESTS / name)]
    theirs = names([*folders, *documents(MANIFESTS / "monitoring" / "metrics-reader.yaml")])
    with helm.Chart.load(CHART) as chart:
        ours = names(rendered(chart, EVERYTHING))
    assert len(theirs) == 4
    assert theirs.isdisjoint(ours)


# Values


@pytest.mark.parametrize("component", COMPONENTS)
@pytest.mark.parametrize("namespace", ["kube-system", "scheduling"])
def test_a_disabled_component_renders_no_objects(chart, component, namespace):
    values = {**EVERYTHING, "serviceMonitor": {"enabled": False}}

    def left(is_on: bool) -> set[tuple[str, str]]:
        switched = {**values, component: {"enabled": is_on}}
        return names(rendered(chart, switched, namespace=namespace))

    suffixes = {"enforcer": ENFORCER, "webhook": WEBHOOK}

    def owner(name: str) -> str:
        return next((each for each, prefix in suffixes.items() if name.startswith(prefix)), "scheduler")

    everything = left(True)
    assert left(False) == {(kind, name) for kind, name in everything if owner(name) != component}
    assert {owner(name) for _, name in everything} == set(COMPONENTS)


@pytest.mark.parametrize(
    ("enforcer", "may_evict", "may_write_costs", "flags"),
    [
        ({"enabled": False}, False, False, set()),
        ({}, True, False, set()),
        ({"dryRun": True}, False, False, {"--dry-run"}),
        ({"deletionCosts": "log"}, True, False, {"--deletion-costs=log"}),
        ({"deletionCosts": "write"}, True, True, {"--deletion-costs=write"}),
        ({"deletionCosts": "write", "dryRun": True}, False, False, {"--dry-run", "--deletion-costs=write"}),
    ],
)
def test_nothing_has_rights_but_for_what_it_does(chart, enforcer, may_evict, may_write_costs, flags):
    objects = rendered(chart, {"enforcer": {"enabled": True, **enforcer}})
    rules = [rule for role in named(objects, "ClusterRole").values() for rule in role["rules"]]
    (costs,) = (role["rules"] for role in documents(DELETION_COSTS) if role["kind"] == "ClusterRole")
    assert any("pods/eviction" in rule.get("resources", ()) for rule in rules) is may_evict
    assert (costs[0] in rules) is may_write_costs
    # A dry run writes neither events nor a Lease.
    writes = {verb for role in ("ClusterRole", "Role") for verb in _written(objects, role)}
    assert writes == ({"evictions", "events", "leases"} if may_evict else set())
    given = {flag for each in named(objects, "Deployment").values() for flag in container(each)["args"]}
    assert {flag for flag in given if flag.startswith(("--dry-run", "--deletion-costs"))} == flags


def _written(objects: list[Json], kind: str) -> set[str]:
    """Return what the enforcer may write by its role of this kind, apart from costs and reviews of its port."""
    rules = (
        named(objects, kind)
        .get(ENFORCER if kind == "ClusterRole" else f"{ENFORCER}-state", {})
        .get("rules", [])
    )
    names = {"pods/eviction": "evictions", "events": "events", "leases": "leases"}
    return {names[each] for rule in rules for each in rule["resources"] if each in names}


def test_to_rebalance_the_enforcer_decides_as_the_scheduler_and_reads_what_it_reads(chart):
    """A dry run has no right to evict, with rebalancing either; without rebalancing nothing of it is left."""
    weights = {"score": {"enabled": [{"name": "InterPodAffinity", "weight": 7}]}}
    spread = {"name": "PodTopologySpread", "args": {"defaultingType": "List"}}
    exempt = {"name": "InterPodAffinity", "args": {"exemptNamespaces": ["daemons"]}}
    profiles = [{"schedulerName": "a", "plugins": weights, "pluginConfig": [spread, exempt]}]
    scheduler = {"configuration": {"profiles": profiles}}
    enforcer = {"enabled": True, "dryRun": True, "rebalance": {"enabled": True, "gain": 50}}
    objects = rendered(chart, {"scheduler": scheduler, "enforcer": enforcer})
    arguments = container(named(objects, "Deployment")[ENFORCER])["args"]
    assert {"--dry-run", "--rebalance", "--rebalance-gain=50", "--rebalance-cool-down=10m"} <= set(arguments)
    rules = named(objects, "ClusterRole")[ENFORCER]["rules"]
    assert not [rule for rule in rules if "pods/eviction" in rule["resources"]]
    (more,) = (each for each in documents(REBALANCE) if each["kind"] == "ClusterRole")
    nominating = {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}
    of_selectors = [
        rule for rule in more["rules"] if set(rule["apiGroups"]) <= {"", "apps"} and rule != nominating
    ]
    assert [rule for rule in rules if rule in more["rules"]] == of_selectors
    texts = [
        next(iter(named(objects, "ConfigMap")[f"{name}-configuration"]["data"].values()))
        for name in ("affinity-scheduler", ENFORCER)
    ]
    ours, theirs = (parse_settings(text, "ConfigMap").profiles for text in texts)
    assert ours == theirs
    for_groups = {"enabled": True, "rebalance": {"enabled": True, "forGroups": 2}}
    for is_dry in (True, False):
        objects = rendered(chart, {"enforcer": {**for_groups, "dryRun": is_dry}})
        rules = named(objects, "ClusterRole")[ENFORCER]["rules"]
        expected = [rule for rule in more["rules"] if not is_dry or rule != nominating]
        assert [rule for rule in rules if rule in more["rules"]] == expected
    without = rendered(chart, {"enforcer": {"enabled": True}})
    assert not [each for each in container(named(without, "Deployment")[ENFORCER])["args"] if "rebal" in each]
    assert not [rule for rule in named(without, "ClusterRole")[ENFORCER]["rules"] if rule in more["rules"]]


def test_rules_of_ones_own_and_rebalancing_do_not_go_together(chart):
    values = {
        "scheduler": {"plugins": {"mine.py": "x = 1"}},
        "enforcer": {"enabled": True, "rebalance": {"enabled": True}},
    }
    with pytest.raises(helm.HelmError, match="would move pods against them"):
        rendered(chart, values)


def test_the_enforcer_has_the_schedulers_exempt_namespaces(chart):
    """Otherwise it would evict pods that the scheduler admits."""
    exempt = {"name": "InterPodAffinity", "args": {"exemptNamespaces": ["daemons"]}}
    profiles = [{"schedulerName": "a", "pluginConfig": [exempt]}]
    values = {"enforcer": {"enabled": True}, "scheduler": {"configuration": {"profiles": profiles}}}
    maps = named(rendered(chart, values), "ConfigMap")
    for name in ("affinity-scheduler", ENFORCER):
        (text,) = maps[f"{name}-configuration"]["data"].values()
        assert exempt_namespaces(parse_settings(text, "ConfigMap")) == {"daemons"}


def test_the_network_policy_admits_the_api_server_and_the_metrics_peers(chart):
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
    values = {**EVERYTHING, "networkPolicy": {"enabled": True, "metricsFrom": peers}}
    objects = rendered(chart, values)
    policies, deployments = named(objects, "NetworkPolicy"), named(objects, "Deployment")
    assert set(policies) == set(deployments)
    for name, deployment in deployments.items():
        spec = policies[name]["spec"]
        assert spec["podSelector"] == deployment["spec"]["selector"]
        ports = {port["name"]: port["containerPort"] for port in container(deployment)["ports"]}
        expected = [{"ports": [{"port": ports["metrics"]}], "from": peers}]
        if "https" in ports:
            expected.insert(0, {"ports": [{"port": ports["https"]}]})
        assert spec["ingress"] == expected
    nobody = rendered(chart, {"networkPolicy": {"enabled": True}})
    assert named(nobody, "NetworkPolicy")["affinity-scheduler"]["spec"]["ingress"] is None
    assert not named(rendered(chart), "NetworkPolicy")


def test_alerts_and_dashboard_are_those_of_the_manifests(chart):
    values = {
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboard": {"enabled": True, "labels": {"grafana_dashboard": "yes"}},
    }
    objects = rendered(chart, values)
    rule = one(objects, "PrometheusRule")
    (expected,) = documents(MANIFESTS / "monitoring" / "rules.yaml")
    assert rule["spec"] == expected["spec"]
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    dashboard = named(objects, "ConfigMap")["affinity-scheduler-dashboard"]
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "yes"
    text = (MANIFESTS / "monitoring" / "dashboard.json").read_text()
    assert json.loads(dashboard["data"]["affinity-scheduler.json"]) == json.loads(text)
    assert {"PrometheusRule"}.isdisjoint(kind for kind, _ in names(rendered(chart)))


@pytest.mark.parametrize("component", COMPONENTS)
def test_its_own_pods_go_where_the_values_say(chart, component):
    affinity: Json = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
    }
    spread = [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
    tolerations = [{"key": "control-plane", "operator": "Exists"}]
    own = {"affinity": affinity, "topologySpreadConstraints": spread, "tolerations": tolerations}
    objects = rendered(chart, {component: {"enabled": True, **own}})
    suffix = "" if component == "scheduler" else f"-{component}"
    spec = named(objects, "Deployment")[f"affinity-scheduler{suffix}"]["spec"]["template"]["spec"]
    assert {name: spec[name] for name in own} == own


def test_one_service_monitor_selects_the_services_of_all_components(chart):
    values = {**EVERYTHING, "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}}
    objects = rendered(chart, values)
    monitor = one(objects, "ServiceMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    selector = monitor["spec"]["selector"]
    (asked,) = selector["matchExpressions"]
    (endpoint,) = monitor["spec"]["endpoints"]
    services = named(objects, "Service").values()
    assert len(services) == 3
    for service in services:
        labels = service["metadata"]["labels"]
        assert selector["matchLabels"].items() <= labels.items()
        assert labels[asked["key"]] in asked["values"]
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert endpoint["scheme"] == "https"
    assert endpoint["authorization"]["credentials"] == {"name": SCRAPER, "key": "token"}
    annotations = named(objects, "Secret")[SCRAPER]["metadata"]["annotations"]
    assert annotations == {"kubernetes.io/service-account.name": SCRAPER}
    binding = named(objects, "ClusterRoleBinding")[SCRAPER]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": SCRAPER, "namespace": "kube-system"}]
    reader = named(objects, "ClusterRole")[binding["roleRef"]["name"]]
    assert reader["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


def test_values_of_the_first_release_are_accepted_as_they_are(tmp_path):
    """As with `helm upgrade --reuse-values`, which takes the old defaults in the place of the new ones."""
    at = f"{COMMIT_OF_0_1_0}:manifests/chart/values.yaml"
    old = subprocess.run(["git", "show", at], cwd=ROOT, capture_output=True, text=True)
    if old.returncode:
        pytest.skip(f"the history does not reach to 0.1.0: {old.stderr}")
    copied = shutil.copytree(CHART, tmp_path / "chart")
    (copied / "values.yaml").write_text(old.stdout)
    with helm.Chart.load(CHART) as chart, helm.Chart.load(copied) as reused:
        moving: Json = {"enforcer": {"enabled": True, "rebalance": {"enabled": True}}}
        for values in ({}, EVERYTHING, moving, {"webhook": {"certManager": {"enabled": True}}}):
            for namespace in ("kube-system", "scheduling"):
                expected = names(rendered(chart, values, namespace=namespace))
                assert names(rendered(reused, values, namespace=namespace)) == expected


@pytest.mark.parametrize(
    ("namespace", "values", "name"),
    [
        pytest.param("kube-system", {}, "system-cluster-critical", id="kube-system"),
        pytest.param("scheduling", {}, None, id="a namespace of its own"),
        pytest.param("scheduling", {"priorityClassName": "mine"}, "mine", id="a class of one's own"),
        pytest.param("kube-system", {"priorityClassName": ""}, None, id="none"),
    ],
)
def test_only_in_kube_system_are_its_pods_critical_to_the_cluster(chart, namespace, values, name):
    """Elsewhere a cluster may refuse such pods."""
    components = dict.fromkeys(("scheduler", "webhook"), values)
    components["enforcer"] = {"enabled": True, **values}
    for each in named(rendered(chart, components, namespace=namespace), "Deployment").values():
        assert each["spec"]["template"]["spec"].get("priorityClassName") == name


def test_no_user_is_fixed_unless_the_values_name_one(chart):
    """A platform that gives each namespace users of its own refuses others."""
    common = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    for given in ({}, {"runAsUser": 65532}, {"runAsNonRoot": False}):
        objects = rendered(chart, {**EVERYTHING, "podSecurityContext": given})
        for each in named(objects, "Deployment").values():
            assert each["spec"]["template"]["spec"]["securityContext"] == common | given


def test_the_configuration_is_merged_over_the_charts(chart):
    """User values replace the chart's, the rest stays, and the program accepts the result."""
    profiles = [{"schedulerName": "a"}, {"schedulerName": "b"}]
    values = {"scheduler": {"configuration": {"profiles": profiles, "clientConnection": {"qps": 50}}}}
    (text,) = one(rendered(chart, values), "ConfigMap")["data"].values()
    settings = parse_settings(text, "ConfigMap")
    assert [profile.scheduler_name for profile in settings.profiles] == ["a", "b"]
    assert (settings.configuration.client_connection.qps, settings.configuration.client_connection.burst) == (
        50,
        100,
    )
    assert settings.configuration.leader_election.leader_elect


def test_a_lease_of_another_name_is_the_one_that_the_scheduler_may_hold(chart):
    """In another namespace its role would not hold: that is refused, as is a Lease that is taken out."""
    profiles = [{"schedulerName": "a"}]

    def role(**lease: str) -> Json:
        configuration = {"profiles": profiles, "leaderElection": lease}
        objects = rendered(chart, {"scheduler": {"configuration": configuration}})
        found: Json = named(objects, "Role")["affinity-scheduler-leader-election"]
        return found

    assert [rule.get("resourceNames") for rule in role(resourceName="mine")["rules"]] == [None, ["mine"]]
    assert role(resourceNamespace="kube-system") == role()
    for lease in ({"resourceNamespace": "other"}, {"resourceNamespace": None}):
        with pytest.raises(helm.HelmError, match="resourceNamespace: expected the release's namespace"):
            role(**lease)


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"scheduler": {"priorityClassName": None}}, id="a class that is null"),
        pytest.param({"scheduler": {"priorityClassName": "a: 'b"}}, id="a class of odd characters"),
        pytest.param({"webhook": {"excludedNamespaces": None}}, id="no list of namespaces"),
    ],
)
def test_odd_values_render_as_they_are(chart, values):
    given = values.get("scheduler", {}).get("priorityClassName")
    objects = rendered(chart, values)
    spec = named(objects, "Deployment")["affinity-scheduler"]["spec"]["template"]["spec"]
    assert spec.get("priorityClassName") == (given if "scheduler" in values else "system-cluster-critical")
    (webhook,) = one(objects, "MutatingWebhookConfiguration")["webhooks"]
    (left_out,) = webhook["namespaceSelector"]["matchExpressions"]
    assert left_out["values"] == ["kube-system"]


def test_a_changed_configuration_or_rule_rolls_the_deployment(chart):
    def template(**scheduler: Any) -> Json:
        objects = rendered(chart, {"scheduler": scheduler})
        found: Json = named(objects, "Deployment")["affinity-scheduler"]["spec"]["template"]
        return found

    configuration = {"clientConnection": {"qps": 50}}
    one_rule, other_rule = {"mine.py": "x = 1"}, {"mine.py": "x = 2"}
    assert template() != template(configuration=configuration)
    assert template(plugins=one_rule) != template(plugins=other_rule)
    assert template(plugins=one_rule, replicas=3) == template(plugins=one_rule)


def test_with_cert_manager_the_webhook_needs_no_rights_for_certificates(chart):
    """The certificate is mounted and the CA injector sets caBundle. Only the reviews for metrics are left."""
    objects = rendered(
        chart, {"scheduler": {"enabled": False}, "webhook": {"certManager": {"enabled": True}}}
    )
    kinds = {each["kind"] for each in objects}
    assert {"Issuer", "Certificate"} <= kinds
    assert not kinds & {"Role", "Secret"}
    rules = one(objects, "ClusterRole")["rules"]
    assert [rule["resources"] for rule in rules] == [["tokenreviews"], ["subjectaccessreviews"]]
    certificate = one(objects, "Certificate")["spec"]
    assert certificate["dnsNames"] == [f"{WEBHOOK}.kube-system.svc"]
    deployment = one(objects, "Deployment")
    volumes = {volume["name"]: volume for volume in deployment["spec"]["template"]["spec"]["volumes"]}
    assert volumes["certificate"]["secret"]["secretName"] == certificate["secretName"]
    assert "--tls-cert-file=/etc/webhook-certificate/tls.crt" in container(deployment)["args"]
    for kind in CONFIGURATIONS:
        annotations = one(objects, kind)["metadata"]["annotations"]
        assert annotations == {"cert-manager.io/inject-ca-from": f"kube-system/{WEBHOOK}"}
    issuer = {"name": "corporate", "kind": "ClusterIssuer"}
    given = {"webhook": {"certManager": {"enabled": True, "issuerRef": issuer}}}
    objects = rendered(chart, given)
    assert one(objects, "Certificate")["spec"]["issuerRef"] == issuer
    assert "Issuer" not in {each["kind"] for each in objects}


def test_by_default_nothing_concerns_pods_of_other_schedulers(chart):
    """No webhook is installed. One that is asks about the pods of the profiles, unless told to ask about all."""
    files = chart.render({}, name="affinity-scheduler", namespace="kube-system")
    assert not any("WebhookConfiguration" in text for text in files.values())
    for pods in ("ours", "all"):
        objects = rendered(chart, {"webhook": {"pods": pods}})
        webhooks = [
            each
            for kind in ("Mutating", "Validating")
            for each in one(objects, f"{kind}WebhookConfiguration")["webhooks"]
        ]
        assert len(webhooks) == 3
        conditions = [[c["expression"] for c in each["matchConditions"]] for each in webhooks]
        is_ours = "object.spec.schedulerName in ['affinity-scheduler']"
        assert [each[0] == is_ours for each in conditions] == [pods == "ours"] * 3
        arguments = container(named(objects, "Deployment")[WEBHOOK])["args"]
        assert ("--schedulers=affinity-scheduler" in arguments) is (pods == "ours")


def test_values_disable_and_narrow_webhooks(chart):
    values = {
        "mutating": False,
        "failurePolicy": "Fail",
        "excludedNamespaces": ["a"],
        "matchConditions": False,
    }
    objects = rendered(chart, {"webhook": values})
    assert "MutatingWebhookConfiguration" not in {each["kind"] for each in objects}
    webhooks = one(objects, "ValidatingWebhookConfiguration")["webhooks"]
    assert len(webhooks) == 2
    for each in webhooks:
        assert each["failurePolicy"] == "Fail"
        assert "matchConditions" not in each
        left_out, *_ = each["namespaceSelector"]["matchExpressions"]
        assert left_out["values"] == ["a", "kube-system"]


@pytest.mark.parametrize(
    ("allowed", "left_out", "requirement"),
    [
        pytest.param(
            None,
            [],
            {"key": "affinity-scheduler.io/annotation-reach", "operator": "NotIn", "values": ["cluster"]},
        ),
        pytest.param(
            {"names": ["platform"], "selector": {"matchLabels": {"tier": "infra"}}},
            ["platform"],
            {"key": "tier", "operator": "NotIn", "values": ["infra"]},
        ),
        pytest.param(
            {"selector": {"matchExpressions": [{"key": "tenant", "operator": "DoesNotExist"}]}},
            [],
            {"key": "tenant", "operator": "Exists"},
        ),
        pytest.param({"selector": {}}, [], None, id="everywhere"),
        pytest.param({"selector": {"matchLabels": {"a": "b", "c": "d"}}}, [], None, id="two requirements"),
    ],
)
def test_the_webhook_refuses_terms_in_the_namespaces_that_the_configuration_does_not_allow(
    chart, allowed, left_out, requirement
):
    """A selector with two requirements has no opposite that a namespaceSelector can say."""
    args = {} if allowed is None else {"annotationNamespaces": allowed}
    profile = {"schedulerName": "a", "pluginConfig": [{"name": "InterPodAffinity", "args": args}]}
    objects = rendered(chart, {"scheduler": {"configuration": {"profiles": [profile]}}})
    _, *reach = one(objects, "ValidatingWebhookConfiguration")["webhooks"]
    selectors = [each["namespaceSelector"]["matchExpressions"] for each in reach]
    excluded = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": [*left_out, "kube-system"],
    }
    assert selectors == ([] if requirement is None else [[excluded, requirement]])


def test_merge_fields_adds_pods_with_affinity_to_the_match_conditions(chart):
    objects = rendered(chart, {"webhook": {"mergeFields": True}})
    (webhook,) = one(objects, "MutatingWebhookConfiguration")["webhooks"]
    assert webhook["matchConditions"][-1]["expression"].startswith("has(object.spec.affinity) ||")
    assert "--merge-fields=true" in container(named(objects, "Deployment")[WEBHOOK])["args"]


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        pytest.param({"webhok": {}}, "webhok", id="a misspelt component"),
        pytest.param({"webhook": {"replica": 3}}, "replica", id="a misspelt value"),
        pytest.param({"webhook": {"failurePolicy": "ignore"}}, "failurePolicy", id="an unknown word"),
        pytest.param({"webhook": {"refuseAntiAffinity": False}}, "refuseAntiAffinity", id="YAML's off"),
        pytest.param({"scheduler": {"replicas": 0}}, "replicas", id="no replica"),
        pytest.param({"enforcer": {"maxShare": 0.1}}, "maxShare", id="a share that is no percentage"),
        pytest.param({"enforcer": {"maxShare": "101%"}}, "maxShare", id="more than all"),
        pytest.param({"enforcer": {"grace": "soon"}}, "grace", id="a duration without numbers"),
        pytest.param({"enforcer": {"maxEvictions": {"perNode": 0}}}, "perNode", id="no eviction at all"),
        pytest.param({"enforcer": {"rebalance": {"gain": 0}}}, "gain", id="a move for nothing"),
        pytest.param({"enforcer": {"rebalance": {"pause": "long"}}}, "pause", id="a pause without numbers"),
        pytest.param({"enforcer": {"protectedNamespaces": ["a,b"]}}, "protectedNam", id="a list in a text"),
        pytest.param({"scheduler": {"configuration": {"profiles": []}}}, "profiles", id="no profile"),
        pytest.param(
            {"scheduler": {"configuration": {"profiles": [{"schedulerName": "a,b"}]}}},
            "schedulerName",
            id="a name that is two in a list",
        ),
        # Helm writes larger numbers as 1e+06, which no flag takes.
        pytest.param({"enforcer": {"maxEvictions": {"perMinute": 1_000_000}}}, "perMinute", id="too many"),
        pytest.param({"enforcer": {"grace": None}}, "grace", id="no grace period"),
        # The API server's default is Fail.
        pytest.param({"webhook": {"failurePolicy": None}}, "failurePolicy", id="no policy"),
        pytest.param(
            {"scheduler": {"podAnnotations": {"checksum/configuration": ""}}},
            "checksum/configuration",
            id="an annotation of the chart",
        ),
    ],
)
def test_invalid_values_are_refused(chart, values, complaint):
    with pytest.raises(helm.HelmValuesError, match=complaint):
        chart.validate_schema(values)


@pytest.mark.parametrize(
    ("webhook", "merges", "refuses", "excepts"),
    [
        pytest.param({}, True, True, "kube-system, mine, nor while", id="defaults"),
        pytest.param({"failurePolicy": "Fail"}, True, True, "kube-system, mine.", id="no pod without it"),
        pytest.param({"validating": False}, True, False, "nor while", id="without validation"),
        pytest.param({"mutating": False}, False, True, "nor while", id="without merging"),
        pytest.param({"reportOnly": True}, True, False, "nor while", id="reports"),
        pytest.param({"refuseAntiAffinity": "off"}, True, False, "nor while", id="refuses nothing"),
        pytest.param({"enabled": False}, False, False, "", id="no webhook"),
    ],
)
def test_the_notes_claim_what_the_values_do(chart, webhook, merges, refuses, excepts):
    webhook = {"enabled": True, **webhook}
    files = chart.render({"webhook": webhook}, name="affinity-scheduler", namespace="mine")
    (notes,) = (text for path, text in files.items() if path.endswith("NOTES.txt"))
    assert ("have their label keys merged" in notes) is merges
    assert ("Required anti-affinity over all namespaces is refused" in notes) is refuses
    assert excepts in notes
    assert ("This does not hold" in notes) is bool(excepts)
