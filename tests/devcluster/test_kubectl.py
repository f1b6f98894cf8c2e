"""
Real kubectl against the embedded cluster, command by command.

`KUBECTL` names another binary than the one on PATH, to try other versions.
"""

import asyncio
import json
import os
import re
import shutil
import textwrap
from contextlib import asynccontextmanager

import pytest

from scheduler.devcluster.cluster import DevCluster
from tests.support.round_robin_binder import N_NODES, bind_in_turn

KUBECTL = shutil.which(os.environ.get("KUBECTL", "kubectl"))
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on PATH")

DEADLINE_S = 30.0
WEB = """
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: web, labels: {app: web}}
    spec:
      replicas: 3
      selector: {matchLabels: {app: web}}
      template:
        metadata: {labels: {app: web}}
        spec:
          containers:
          - {name: c, image: "web:1", ports: [{containerPort: 80}], resources: {requests: {cpu: 100m}}}
"""

OTHERS = """
    apiVersion: v1
    kind: List
    items:
    - {apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 80}]}}
    - {apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: b}}
    - {apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: l}, spec: {holderIdentity: me}}
    - apiVersion: v1
      kind: ReplicationController
      metadata: {name: r}
      spec:
        replicas: 0
        selector: {app: r}
        template: {metadata: {labels: {app: r}}, spec: {containers: [{name: c, image: i}]}}
    - apiVersion: apps/v1
      kind: StatefulSet
      metadata: {name: db}
      spec:
        replicas: 0
        serviceName: db
        selector: {matchLabels: {app: db}}
        template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: i}]}}
"""
COLUMNS = {
    "get pods": "NAME READY STATUS RESTARTS AGE",
    "get pods -A": "NAMESPACE NAME READY STATUS RESTARTS AGE",
    "get pods --show-labels": "NAME READY STATUS RESTARTS AGE LABELS",
    "get nodes": "NAME STATUS ROLES AGE VERSION",
    "get deployments": "NAME READY UP-TO-DATE AVAILABLE AGE",
    "get deploy -o wide": "NAME READY UP-TO-DATE AVAILABLE AGE CONTAINERS IMAGES SELECTOR",
    "get rs": "NAME DESIRED CURRENT READY AGE",
    "get sts": "NAME READY AGE",
    "get rc": "NAME DESIRED CURRENT READY AGE",
    "get svc": "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE",
    "get ns": "NAME STATUS AGE",
    "get leases": "NAME HOLDER AGE",
    "get cm": "NAME DATA AGE",
    "get sa": "NAME AGE",
    "get sc": "NAME PROVISIONER RECLAIMPOLICY VOLUMEBINDINGMODE ALLOWVOLUMEEXPANSION AGE",
    "get csinodes": "NAME DRIVERS AGE",
    "get deploy web --subresource=scale": "NAME DESIRED AVAILABLE AGE",
}


class Kubectl:
    """Runs kubectl on one cluster."""

    def __init__(self, home, kubeconfig):
        self._env = {
            "HOME": str(home),
            "KUBECONFIG": str(kubeconfig),
            "PATH": os.environ["PATH"],
            "TZ": "UTC",
        }

    async def start(self, *args):
        """Start kubectl as a process; its standard error goes to its output."""
        return await asyncio.create_subprocess_exec(
            KUBECTL or "kubectl",
            *args,
            env=self._env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def attempt(self, command, stdin=""):
        """Return (exit code, output) of `kubectl <command>`."""
        process = await self.start(*command.split())
        async with asyncio.timeout(DEADLINE_S):
            out, _ = await process.communicate(textwrap.dedent(stdin).encode())
        return process.returncode, out.decode()

    async def __call__(self, command, stdin=""):
        """Return the output of `kubectl <command>`, which succeeds."""
        code, out = await self.attempt(command, stdin)
        assert code == 0, f"kubectl {command}: {out}"
        return out

    async def web(self):
        """Apply the deployment of WEB and wait until it is rolled out."""
        await self("apply -f -", WEB)
        await self("rollout status deployment/web")


@asynccontextmanager
async def devcluster(tmp_path):
    async with DevCluster(nodes=N_NODES, zones=3, controllers=True) as cluster:
        cluster.write_kubeconfig(tmp_path / "kubeconfig")
        binder = asyncio.create_task(bind_in_turn(cluster.store))
        try:
            yield Kubectl(tmp_path, tmp_path / "kubeconfig")
            assert not binder.done()
        finally:
            binder.cancel()
            await asyncio.gather(binder, return_exceptions=True)


def rows(out):
    """Return the lines of a table as lists of cells, header first."""
    return [re.split(r" {2,}", line.strip()) for line in out.strip().splitlines() if line.strip()]


def header(out):
    return rows(out)[0]


@pytest.mark.asyncio
async def test_version_and_resources_are_shown(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        assert "Server Version: v1.36.0-devcluster" in await kubectl("version")
        assert "control plane" in await kubectl("cluster-info")
        resources = {row[0]: row[1:] for row in rows(await kubectl("api-resources"))}
        assert resources["deployments"] == ["deploy", "apps/v1", "true", "Deployment"]
        assert resources["nodes"] == ["no", "v1", "false", "Node"]
        assert "policy/v1" in await kubectl("api-versions")
        assert await kubectl("get --raw /readyz") == "ok"


@pytest.mark.asyncio
async def test_tables_have_the_usual_columns(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        await kubectl("apply -f -", WEB)
        await kubectl("apply -f -", OTHERS)
        shown = {command: " ".join(header(await kubectl(command))) for command in COLUMNS}
        assert shown == COLUMNS


@pytest.mark.asyncio
async def test_columns_of_two_words(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        await kubectl.web()
        await kubectl("create pdb b --selector=app=web --min-available=2")
        await kubectl("create priorityclass high --value=1000")
        wide = ["IP", "NODE", "NOMINATED NODE", "READINESS GATES"]
        assert header(await kubectl("get pods -o wide")) == [
            "NAME",
            "READY",
            "STATUS",
            "RESTARTS",
            "AGE",
            *wide,
        ]
        assert header(await kubectl("get events")) == ["LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
        assert header(await kubectl("get events.events.k8s.io"))[0] == "LAST SEEN"
        budgets = rows(await kubectl("get pdb"))
        assert budgets[0] == ["NAME", "MIN AVAILABLE", "MAX UNAVAILABLE", "ALLOWED DISRUPTIONS", "AGE"]
        assert budgets[1][:4] == ["b", "2", "N/A", "1"]
        classes = rows(await kubectl("get pc"))
        assert classes[0] == ["NAME", "VALUE", "GLOBAL-DEFAULT", "AGE", "PREEMPTIONPOLICY"]


@pytest.mark.asyncio
async def test_get_all_shows_a_deployment_from_top_to_bottom(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        await kubectl.web()
        out = await kubectl("get all")
        assert re.findall(r"^(\w+[.\w]*)/web", out, re.MULTILINE) == [
            *["pod"] * 3,
            "deployment.apps",
            "replicaset.apps",
        ]
        assert out.count("1/1     Running   0") == 3
        assert "deployment.apps/web   3/3     3            3" in out


@pytest.mark.asyncio
async def test_apply_creates_changes_and_leaves_alone(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        assert await kubectl("apply -f -", WEB) == "deployment.apps/web created\n"
        assert await kubectl("apply -f -", WEB) == "deployment.apps/web unchanged\n"
        assert (
            await kubectl("apply -f -", WEB.replace("web:1", "web:2")) == "deployment.apps/web configured\n"
        )
        code, out = await kubectl.attempt("diff -f -", WEB)
        assert code == 1
        assert "-      - image: web:2" in out
        assert "+      - image: web:1" in out
        sidecar = '- {name: side, image: "side:1"}'
        await kubectl("apply -f -", f"{WEB.rstrip()}\n          {sidecar}\n")
        images = await kubectl("get deploy web -o jsonpath={.spec.template.spec.containers[*].image}")
        assert images == "web:1 side:1"
        assert (
            await kubectl("apply --server-side --force-conflicts -f -", WEB)
            == "deployment.apps/web serverside-applied\n"
        )


@pytest.mark.asyncio
async def test_create_makes_objects_of_every_kind_it_can_make_up(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        for command in (
            "create namespace team",
            "create deployment other --image=other:1 --replicas=2 --port=80",
            "create configmap c --from-literal=a=b",
            "create serviceaccount bot",
            "create service clusterip s --tcp=80:8080",
            "create service nodeport n --tcp=80",
            "create pdb b --selector=app=web --max-unavailable=50%",
            "create priorityclass high --value=1000",
            "create job once --image=one:1",
            "create cronjob nightly --image=one:1 --schedule=@daily",
            "create secret generic key --from-literal=a=b",
            "create role reader --verb=get --resource=pods",
            "create rolebinding reads --role=reader --serviceaccount=default:bot",
            "create clusterrole scraper --verb=get --non-resource-url=/metrics",
            "create clusterrolebinding scrapes --clusterrole=scraper --user=me --group=us",
            "create ingress way --rule=a.test/b*=s:http,tls=key --default-backend=n:80",
            "run one --image=one:1",
            "expose deployment other --port=80 --name=front",
        ):
            assert re.search(r"(created|exposed)$", await kubectl(command))
        await kubectl("rollout status deployment/other")
        assert await kubectl("get cm c -o jsonpath={.data.a}") == "b"
        assert await kubectl("get pdb b -o jsonpath={.spec.maxUnavailable}") == "50%"
        assert await kubectl("get svc s -o jsonpath={.spec.ports[0].targetPort}") == "8080"
        assert await kubectl("get pc high -o jsonpath={.value}") == "1000"
        assert await kubectl("get secret key -o jsonpath={.data.a}") == "Yg=="
        assert await kubectl("get clusterrole scraper -o jsonpath={.rules}") == (
            '[{"nonResourceURLs":["/metrics"],"verbs":["get"]}]'
        )
        assert await kubectl("get clusterrolebinding scrapes -o jsonpath={.subjects[*].name}") == "me us"
        assert await kubectl("get ingress way -o jsonpath={.spec.rules[0].http.paths[0].backend}") == (
            '{"service":{"name":"s","port":{"name":"http"}}}'
        )
        assert await kubectl("create token bot --duration=1h")
        dry = await kubectl("create deployment dry --image=i --dry-run=server -o name")
        assert dry == "deployment.apps/dry\n"
        code, out = await kubectl.attempt("get deployment dry")
        assert code == 1
        assert 'deployments.apps "dry" not found' in out


DATABASE = """
    apiVersion: apps/v1
    kind: StatefulSet
    metadata: {name: db}
    spec:
      serviceName: db
      replicas: 3
      selector: {matchLabels: {app: db}}
      template:
        metadata: {labels: {app: db}}
        spec:
          containers: [{name: db, image: "db:1", volumeMounts: [{name: data, mountPath: /data}]}]
      volumeClaimTemplates:
      - metadata: {name: data}
        spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 10Gi}}}
    """


@pytest.mark.asyncio
async def test_a_stateful_set_comes_up_with_its_claims(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        await kubectl("apply -f -", DATABASE)
        assert "3 new pods have been updated" in await kubectl("rollout status sts/db")
        claims = rows(await kubectl("get pvc"))
        bound = [[row[0], row[1], *row[3:6]] for row in claims[1:]]
        assert bound == [[f"data-db-{n}", "Bound", "10Gi", "RWO", "standard"] for n in range(3)]
        volumes = rows(await kubectl("get pv --sort-by=.spec.claimRef.name"))
        own = [[*row[1:4], row[4], row[5]] for row in volumes[1:]]
        assert own == [["10Gi", "RWO", "Delete", "Bound", f"default/data-db-{n}"] for n in range(3)]
        assert "standard (default)" in await kubectl("get sc")
        described = await kubectl("describe pvc data-db-0")
        assert "Used By:       db-0" in described
        await kubectl("delete sts db --cascade=foreground")
        assert len(rows(await kubectl("get pvc"))) == 4
        await kubectl("delete pvc --all")
        assert "No resources found" in await kubectl("get pv")


@pytest.mark.asyncio
async def test_a_job_is_waited_for_and_a_daemon_set_followed(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        await kubectl("create job once --image=one:1")
        await kubectl("wait --for=condition=complete job/once --timeout=30s")
        assert rows(await kubectl("get jobs"))[1][:3] == ["once", "Complete", "1/1"]
        daemons = WEB.replace("Deployment", "DaemonSet").replace("replicas: 3", "")
        await kubectl("apply -f -", daemons)
        await kubectl("rollout status ds/web")
        assert rows(await kubectl("get ds"))[1][:7] == ["web", "3", "3", "3", "3", "3", "<none>"]


WIDGETS = """
    apiVersion: apiextensions.k8s.io/v1
    kind: CustomResourceDefinition
    metadata: {name: widgets.example.com}
    spec:
      group: example.com
      scope: Namespaced
      names: {plural: widgets, kind: Widget, shortNames: [wd]}
      versions:
      - name: v1
        served: true
        storage: true
        schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
        additionalPrinterColumns: [{name: Size, type: integer, jsonPath: .spec.size}]
    """
WIDGET = """
    apiVersion: example.com/v1
    kind: Widget
    metadata: {name: w}
    spec: {size: 3}
    """


@pytest.mark.asyncio
async def test_custom_resources_are_applied_and_listed(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        await kubectl("apply -f -", WIDGETS)
        await kubectl("wait --for=condition=established crd/widgets.example.com")
        assert await kubectl("apply -f -", WIDGET) == "widget.example.com/w created\n"
        assert await kubectl("apply -f -", WIDGET) == "widget.example.com/w unchanged\n"
        larger = WIDGET.replace("size: 3", "size: 4")
        assert await kubectl("apply -f -", larger) == "widget.example.com/w configured\n"
        assert rows(await kubectl("get wd")) == [["NAME", "SIZE"], ["w", "4"]]
        await kubectl("delete crd widgets.example.com")
        code, out = await kubectl.attempt("get wd")
        assert code == 1
        assert "the server could not find the requested resource" in out


@pytest.mark.asyncio
async def test_a_rollout_can_be_followed_undone_and_restarted(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        await kubectl.web()
        await kubectl("set image deployment/web c=web:2")
        out = await kubectl("rollout status deployment/web")
        assert out.endswith('deployment "web" successfully rolled out\n')
        assert [row[0] for row in rows(await kubectl("rollout history deployment/web"))[2:]] == ["1", "2"]
        assert "Image:	web:1" in await kubectl("rollout history deployment/web --revision=1")
        undone = await kubectl("rollout undo deployment/web")
        # kubectl 1.36 warns that `apply` has managed the deployment.
        assert undone.endswith("deployment.apps/web rolled back\n")
        await kubectl("rollout status deployment/web")
        assert [row[0] for row in rows(await kubectl("rollout history deployment/web"))[2:]] == ["2", "3"]
        assert set((await kubectl("get pods -o jsonpath={..image}")).split()) == {"web:1"}
        assert await kubectl("rollout restart deployment/web") == "deployment.apps/web restarted\n"
        await kubectl("rollout status deployment/web")
        assert len(rows(await kubectl("get rs"))) == 4
        assert await kubectl("rollout pause deployment/web") == "deployment.apps/web paused\n"
        assert await kubectl("rollout resume deployment/web") == "deployment.apps/web resumed\n"


@pytest.mark.asyncio
async def test_scaling_ends_at_the_size_wanted(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        await kubectl.web()
        assert await kubectl("scale deployment web --replicas=5") == "deployment.apps/web scaled\n"
        await kubectl("rollout status deployment/web")
        assert await kubectl("get deploy web -o jsonpath={.status.readyReplicas}") == "5"
        await kubectl("scale deployment web --replicas=0")
        await kubectl("wait --for=delete pod -l app=web --timeout=20s")
        assert "No resources found" in await kubectl("get pods")


@pytest.mark.asyncio
async def test_a_stateful_set_rolls(tmp_path):
    manifest = """
        apiVersion: apps/v1
        kind: StatefulSet
        metadata: {name: db}
        spec:
          serviceName: db
          replicas: 2
          selector: {matchLabels: {app: db}}
          template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: "db:1"}]}}
    """
    async with devcluster(tmp_path) as kubectl:
        await kubectl("apply -f -", manifest)
        assert "2 new pods have been updated" in await kubectl("rollout status sts/db")
        await kubectl("set image sts/db c=db:2")
        await kubectl("rollout status sts/db")
        assert await kubectl("get pods -o jsonpath={..image}") == "db:2 db:2 db:2 db:2"


@pytest.mark.asyncio
async def test_labels_and_annotations_are_put_on_and_taken_off(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        await kubectl("run one --image=i")
        assert await kubectl("label pod one tier=front") == "pod/one labeled\n"
        assert await kubectl("annotate pod one note=hello") == "pod/one annotated\n"
        assert await kubectl("get pods -l tier=front -L tier -o name") == "pod/one\n"
        code, out = await kubectl.attempt("label pod one tier=back")
        assert code == 1
        assert "already has a value (front)" in out
        assert await kubectl("label pod one tier-") == "pod/one unlabeled\n"
        assert await kubectl("label node node-0001 disk=ssd --overwrite") == "node/node-0001 labeled\n"


@pytest.mark.parametrize(
    ("command", "patterns"),
    [
        pytest.param(
            "describe pod -l app=web",
            [r"Controlled By: +ReplicaSet/web-", r"Ready +True", r"cpu: +100m", r"Node: +node-000\d/"],
            id="pod",
        ),
        pytest.param(
            "describe node node-0001",
            [
                r"Unschedulable: +false",
                r"Ready +True",
                r"Non-terminated Pods: +\(1 in total\)",
                r"cpu +100m \(2%\)",
            ],
            id="node",
        ),
        pytest.param(
            "describe deployment web",
            [
                r"Replicas: +3 desired \| 3 updated \| 3 total \| 3 available \| 0 unavailable",
                r"Available +True +MinimumReplicasAvailable",
                r"Progressing +True +NewReplicaSetAvailable",
                r"NewReplicaSet: +web-\w+ \(3/3 replicas created\)",
                r"ScalingReplicaSet .*deployment-controller +Scaled up replica set web-\w+ from 0 to 3",
            ],
            id="deployment",
        ),
        pytest.param(
            "describe rs", [r"Controlled By: +Deployment/web", r"Created pod: web-"], id="replica set"
        ),
    ],
)
@pytest.mark.asyncio
async def test_describe_shows_owners_conditions_and_events(tmp_path, command, patterns):
    async with devcluster(tmp_path) as kubectl:
        await kubectl.web()
        out = await kubectl(command)
        for pattern in patterns:
            assert re.search(pattern, out), f"{pattern} in:\n{out}"


@pytest.mark.asyncio
async def test_watching_shows_changes_as_they_come(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        await kubectl("create deployment web --image=i")
        await kubectl("rollout status deployment/web")
        watch = await kubectl.start("get", "deployment", "web", "-w")
        assert watch.stdout is not None
        lines = []
        async with asyncio.timeout(DEADLINE_S):
            lines += [await watch.stdout.readline(), await watch.stdout.readline()]
            await kubectl("scale deployment web --replicas=2")
            while b"2/2" not in lines[-1]:
                lines.append(await watch.stdout.readline())
            watch.terminate()
            await watch.communicate()
        assert lines[0].split()[:2] == [b"NAME", b"READY"]
        assert lines[1].split()[:2] == [b"web", b"1/1"]
        assert [line for line in lines if line.startswith(b"NAME")] == lines[:1]


@pytest.mark.asyncio
async def test_deletion_takes_the_dependents_along(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        await kubectl.web()
        name = (await kubectl("get pods -o name")).split()[0]
        assert "deleted" in await kubectl(f"delete {name}")
        await kubectl("rollout status deployment/web")
        assert "deleted" in await kubectl("delete -f -", WEB)
        await kubectl("wait --for=delete pod -l app=web --timeout=20s")
        assert "No resources found" in await kubectl("get all")
        await kubectl("create namespace team")
        await kubectl("run one --image=i -n team")
        assert "deleted" in await kubectl("delete namespace team")
        code, out = await kubectl.attempt("get namespace team")
        assert (code, "NotFound" in out) == (1, True)


@pytest.mark.asyncio
async def test_foreground_deletion_waits_and_orphans_stay(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        await kubectl.web()
        await kubectl("delete deployment web --cascade=orphan")
        assert len(rows(await kubectl("get rs"))) == 2
        await kubectl("apply -f -", WEB)
        await kubectl("rollout status deployment/web")
        assert len(rows(await kubectl("get rs"))) == 2, "the orphan is adopted, not doubled"
        await kubectl("delete deployment web --cascade=foreground")
        assert "No resources found" in await kubectl("get rs")


@pytest.mark.asyncio
async def test_a_drained_node_is_empty_as_far_as_budgets_allow(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        await kubectl.web()
        await kubectl("create pdb b --selector=app=web --min-available=3")
        name = (await kubectl("get pods -o jsonpath={.items[0].metadata.name}")).strip()
        eviction = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}})
        path = f"/api/v1/namespaces/default/pods/{name}/eviction"
        code, out = await kubectl.attempt(f"create --raw {path} -f -", eviction)
        assert code == 1
        assert "Cannot evict pod as it would violate the pod's disruption budget" in out
        await kubectl("delete pdb b")
        assert "drained" in await kubectl("drain node-0001")
        assert "Ready,SchedulingDisabled" in await kubectl("get node node-0001")
        assert await kubectl("uncordon node-0001") == "node/node-0001 uncordoned\n"
        assert await kubectl("taint node node-0001 a=b:NoSchedule") == "node/node-0001 tainted\n"


@pytest.mark.asyncio
async def test_small_commands_answer(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        assert await kubectl("auth can-i create pods") == "yes\n"
        assert "*.*" in await kubectl("auth can-i --list")
        assert "devcluster-admin" in await kubectl("auth whoami")
        assert re.search(r"spec\s+<Object>", await kubectl("explain deployment"))
        assert "FIELD: labels <map[string]string>" in await kubectl("explain pod.metadata.labels")
        await kubectl("run one --image=i")
        assert await kubectl("wait --for=condition=Ready pod/one") == "pod/one condition met\n"
        assert "No events found" in await kubectl("events --for pod/one")
        patched = await kubectl('patch pod one -p {"metadata":{"labels":{"a":"b"}}}')
        assert patched == "pod/one patched\n"
        yaml = await kubectl("get pod one -o yaml")
        assert (await kubectl("replace -f -", yaml)) == "pod/one replaced\n"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("get unicorns", 'the server doesn\'t have a resource type "unicorns"'),
        ("get pod nope", 'Error from server (NotFound): pods "nope" not found'),
        ("run one --image=i -n nope", 'Error from server (NotFound): namespaces "nope" not found'),
        (
            "create namespace default",
            'Error from server (AlreadyExists): namespaces "default" already exists',
        ),
        ("label pod nope a=b", 'pods "nope" not found'),
        ("top pods", "Metrics API not available"),
    ],
)
@pytest.mark.asyncio
async def test_missing_things_are_reported_in_upstreams_words(tmp_path, command, message):
    async with devcluster(tmp_path) as kubectl:
        code, out = await kubectl.attempt(command)
        assert code == 1
        assert message in out


@pytest.mark.asyncio
async def test_an_invalid_object_is_refused_with_the_servers_words(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        code, out = await kubectl.attempt("run Bad_Name --image=i")
        assert code == 1
        assert "metadata.name: Invalid value" in out


@pytest.mark.asyncio
async def test_a_server_side_apply_creates_and_merges(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        for _ in range(2):
            applied = await kubectl("apply --server-side -f -", WEB)
            assert applied == "deployment.apps/web serverside-applied\n"


@pytest.mark.asyncio
async def test_long_lists_are_paged(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        for index in range(5):
            await kubectl(f"create configmap c{index}")
        assert len((await kubectl("get configmaps --chunk-size=2 --no-headers")).splitlines()) == 5


QUOTA = """
    apiVersion: v1
    kind: ResourceQuota
    metadata: {name: small}
    spec: {hard: {pods: "1", limits.cpu: "2", requests.cpu: 1500m}}
"""
LIMITED = (
    '--overrides={"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"500m"}}}]}}'
)


@pytest.mark.asyncio
async def test_a_quota_is_counted_and_shown(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        await kubectl("apply -f -", QUOTA)
        await kubectl("wait --for=jsonpath={.status.used.pods}=0 quota/small --timeout=20s")
        await kubectl(f"run one --image=i {LIMITED}")
        assert rows(await kubectl("get quota"))[1][:3] == [
            "small",
            "pods: 1/1, requests.cpu: 500m/1500m",
            "limits.cpu: 500m/2",
        ]
        code, out = await kubectl.attempt(f"run two --image=i {LIMITED}")
        assert code == 1
        assert "exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1" in out
        assert ["pods", "1", "1"] in [
            line.split() for line in (await kubectl("describe quota small")).splitlines()
        ]
        await kubectl("delete pod one --now")
        await kubectl("wait --for=jsonpath={.status.used.pods}=0 quota/small --timeout=20s")


@pytest.mark.asyncio
async def test_a_quota_made_on_the_command_line_has_its_limits_and_scopes(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        await kubectl("create quota across --hard=pods=0 --scopes=CrossNamespacePodAffinity")
        assert "CrossNamespacePodAffinity" in await kubectl("describe quota across")
