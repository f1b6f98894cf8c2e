"""
Real kubectl against the embedded cluster, session by session.

`KUBECTL` names another binary than the one on PATH, to try other versions.
"""

import asyncio
import json
import os
import re
import shutil
import textwrap
from contextlib import asynccontextmanager
from functools import partial

import pytest

from scheduler.sandbox.devcluster.cluster import DevCluster
from tests.support.round_robin_binder import N_NODES, bind_in_turn
from tests.support.waiting import until

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
#: Name -> the manifest that a session applies.
MANIFESTS = {
    "web": WEB,
    "web-2": WEB.replace("web:1", "web:2"),
    "misspelled": WEB.replace("containers:", "affinity: {podAntiafinity: {}}\n          containers:"),
    "sidecar": f'{WEB.rstrip()}\n          - {{name: side, image: "side:1"}}\n',
    "doomed": WEB.replace("Deployment", "ReplicaSet")
    .replace("name: web", "name: doomed")
    .replace("containers:", "priorityClassName: none\n          containers:"),
    "daemons": WEB.replace("Deployment", "DaemonSet").replace("replicas: 3", ""),
    "others": """
    apiVersion: v1
    kind: List
    items:
    - {apiVersion: v1, kind: Service, metadata: {name: s}, spec: {ports: [{port: 80}]}}
    - {apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: b}}
    - {apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: l}, spec: {holderIdentity: me}}
    """,
    "database": """
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
    """,
}
#: What is done in a new cluster -> its commands. `$` is a kubectl that succeeds, `!` one that fails. Each line below a
#: command has to be a line of its output; `...` stands for any text, and blanks count once.
SESSIONS = {
    "versions and resources": """
        $ version
        Server Version: v1.36.0-devcluster
        $ cluster-info
        ...control plane...
        $ api-resources
        deployments deploy apps/v1 true Deployment
        nodes no v1 false Node
        $ api-versions
        policy/v1
        $ get --raw /readyz
        ok
    """,
    "tables": """
        $ apply -f web -f others -f database -f doomed
        $ rollout status deployment/web
        $ create pdb b --selector=app=web --min-available=2
        $ create priorityclass high --value=1000
        $ get pods -A --show-labels
        NAMESPACE NAME READY STATUS RESTARTS AGE LABELS
        default web-... 1/1 Running 0 ...
        $ get pods -o wide
        NAME READY STATUS RESTARTS AGE IP NODE NOMINATED NODE READINESS GATES
        web-... 1/1 Running 0 ... <none> node-000... <none> <none>
        $ get nodes,ns,leases,events,pdb,pc
        NAME STATUS ROLES AGE VERSION
        node/node-0001 Ready <none> ... v1.36.0
        namespace/default Active ...
        lease.coordination.k8s.io/l me ...
        LAST SEEN TYPE REASON OBJECT MESSAGE
        ... Warning FailedCreate replicaset/doomed Error creating: pods "doomed-..." is forbidden...
        poddisruptionbudget.policy/b 2 N/A 1 ...
        priorityclass.scheduling.k8s.io/high 1000 false ... PreemptLowerPriority
        $ get all
        pod/web-... 1/1 Running 0 ...
        NAME READY UP-TO-DATE AVAILABLE AGE
        deployment.apps/web 3/3 3 3 ...
        NAME DESIRED CURRENT READY AGE
        replicaset.apps/web-... 3 3 3 ...
    """,
    "apply": """
        $ apply -f web
        deployment.apps/web created
        $ apply -f web
        deployment.apps/web unchanged
        $ apply -f web-2
        deployment.apps/web configured
        ! diff -f web
        - - image: web:2
        + - image: web:1
        $ apply -f sidecar
        $ get deploy web -o jsonpath={.spec.template.spec.containers[*].image}
        web:1 side:1
        $ apply --server-side --force-conflicts -f web
        deployment.apps/web serverside-applied
        $ apply --server-side --field-manager=me -f others
        configmap/c serverside-applied
        ! apply --validate=strict -f misspelled
        ...strict decoding error: unknown field "spec.template.spec.affinity.podAntiafinity"...
        $ apply --validate=warn -f misspelled
        Warning: unknown field "spec.template.spec.affinity.podAntiafinity"
    """,
    "objects that kubectl makes up": """
        $ create namespace team
        $ create deployment other --image=other:1 --replicas=2 --port=80
        $ create configmap c --from-literal=a=b
        $ create serviceaccount bot
        $ create service clusterip s --tcp=80:8080
        $ create service nodeport n --tcp=80
        $ create pdb b --selector=app=web --max-unavailable=50%
        $ create priorityclass high --value=1000
        $ create job once --image=one:1
        $ create cronjob nightly --image=one:1 --schedule=@daily
        $ create job --from=cronjob/nightly tonight
        $ create secret generic key --from-literal=a=b
        $ create role reader --verb=get --resource=pods
        $ create rolebinding reads --role=reader --serviceaccount=default:bot
        $ create clusterrole scraper --verb=get --non-resource-url=/metrics
        $ create clusterrolebinding scrapes --clusterrole=scraper --user=me --group=us
        $ run one --image=one:1
        $ expose deployment other --port=80 --name=front
        $ rollout status deployment/other
        $ get cm/c secret/key pdb/b svc/s -o jsonpath={..data.a};{..maxUnavailable};{..targetPort}
        b Yg==;50%;8080
        $ get clusterrole/scraper clusterrolebinding/scrapes -o jsonpath={..rules};{..subjects[*].name}
        [{"nonResourceURLs":["/metrics"],"verbs":["get"]}];me us
        $ create token bot --duration=1h
        $ create deployment dry --image=i --dry-run=server -o name
        deployment.apps/dry
        ! get deployment dry
        ...deployments.apps "dry" not found
    """,
    "a stateful set with claims": """
        $ apply -f database
        $ rollout status sts/db
        ...3 new pods have been updated...
        $ get pvc
        data-db-0 Bound pvc-... 10Gi RWO standard ...
        data-db-2 Bound pvc-... 10Gi RWO standard ...
        $ get pv,sc
        persistentvolume/pvc-... 10Gi RWO Delete Bound default/data-db-1 standard ...
        storageclass.storage.k8s.io/standard (default) ...
        $ describe pvc data-db-0
        Used By: db-0
        $ scale sts/db --replicas=2
        $ wait --for=delete pod/db-2 --timeout=20s
        $ get pvc -o name
        persistentvolumeclaim/data-db-2
        $ scale sts/db --replicas=3
        $ set image sts/db db=db:2
        $ rollout status sts/db
        $ delete sts db --cascade=foreground
        $ get pvc -o name
        persistentvolumeclaim/data-db-2
        $ delete pvc --all
        $ get pv
        No resources found
    """,
    "jobs and daemons": """
        $ create job once --image=one:1
        $ wait --for=condition=complete job/once --timeout=30s
        $ get jobs
        once Complete 1/1 ...
        $ apply -f daemons
        $ rollout status ds/web
        $ get ds
        web 3 3 3 3 3 ...
    """,
    "rollouts": """
        $ apply -f web
        $ set image deployment/web c=web:2
        $ rollout status deployment/web
        deployment "web" successfully rolled out
        $ get pods -o jsonpath={..containers[0].image}
        web:2 web:2 web:2
        $ rollout restart deployment/web
        deployment.apps/web restarted
        $ scale deployment web --replicas=5
        deployment.apps/web scaled
        $ rollout status deployment/web
        $ get deploy web -o jsonpath={.status.readyReplicas}
        5
        $ scale deployment web --replicas=0
        $ wait --for=delete pod -l app=web --timeout=20s
        $ get pods
        No resources found in default namespace.
    """,
    "labels, annotations and small changes": """
        $ run one --image=i
        $ label pod one tier=front
        pod/one labeled
        $ annotate pod one note=hello
        pod/one annotated
        $ label pod one tier-
        pod/one unlabeled
        $ label node node-0001 node-role.kubernetes.io/worker=
        $ get node node-0001
        node-0001 Ready worker ...
        $ patch pod one -p {"metadata":{"labels":{"a":"b"}}}
        pod/one patched
        $ wait --for=condition=Ready pod/one
        pod/one condition met
    """,
    "descriptions": """
        $ apply -f web
        $ rollout status deployment/web
        $ describe pod -l app=web
        Controlled By: ReplicaSet/web-...
        Ready True
        cpu: 100m
        Node: node-000...
        $ describe node node-0001
        Unschedulable: false
        Ready True ...
        Non-terminated Pods: (1 in total)
        cpu 100m (2%) ...
        $ describe deployment web
        Replicas: 3 desired | 3 updated | 3 total | 3 available | 0 unavailable
        Available True MinimumReplicasAvailable
        NewReplicaSet: web-... (3/3 replicas created)
        $ describe rs
        Controlled By: Deployment/web
    """,
    "deletions": """
        $ apply -f web
        $ rollout status deployment/web
        $ delete deployment web --cascade=orphan
        $ get rs -o jsonpath={.items[*].spec.replicas}
        3
        $ delete rs --all
        $ create deployment web --image=i
        $ delete deployment web --cascade=foreground
        $ get rs
        No resources found in default namespace.
        $ create namespace team
        $ run one --image=i -n team
        $ delete namespace team
        namespace "team" deleted
        ! get namespace team
        ...(NotFound)...
    """,
    "a drained node": """
        $ apply -f web
        $ rollout status deployment/web
        $ drain node-0001
        node/node-0001 drained
        $ get node node-0001
        node-0001 Ready,SchedulingDisabled ...
        $ uncordon node-0001
        node/node-0001 uncordoned
        $ taint node node-0001 a=b:NoSchedule
        node/node-0001 tainted
    """,
    "questions": """
        $ auth can-i create pods
        yes
        $ auth can-i --list
        *.* ...
        $ explain deployment
        spec <Object>
        $ explain pod.metadata.labels
        FIELD: labels <map[string]string>
        $ explain secret
        stringData <map[string]string>
    """,
    "refusals": """
        ! get unicorns
        error: the server doesn't have a resource type "unicorns"
        ! get pod nope
        Error from server (NotFound): pods "nope" not found
        ! top pods
        error: Metrics API not available
        ! logs nope
        ...pods "nope" not found...
    """,
}


class Kubectl:
    """Runs kubectl on one cluster, in a folder with the manifests."""

    def __init__(self, folder):
        self._folder = folder
        self._env = {
            "HOME": str(folder),
            "KUBECONFIG": str(folder / "kubeconfig"),
            "PATH": os.environ["PATH"],
            "TZ": "UTC",
        }
        for name, manifest in MANIFESTS.items():
            (folder / name).write_text(textwrap.dedent(manifest))

    async def start(self, *args):
        """Start kubectl as a process; its standard error goes to its output."""
        return await asyncio.create_subprocess_exec(
            KUBECTL or "kubectl",
            *args,
            cwd=self._folder,
            env=self._env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )

    async def __call__(self, command, stdin="", *, fails=False):
        """Return the output of `kubectl <command>`, which succeeds unless it `fails`."""
        process = await self.start(*command.split())
        async with asyncio.timeout(DEADLINE_S):
            out, _ = await process.communicate(stdin.encode())
        assert (process.returncode != 0) == fails, f"kubectl {command}: {out.decode()}"
        return out.decode()


@asynccontextmanager
async def devcluster(tmp_path):
    async with DevCluster(nodes=N_NODES, zones=3, controllers=True) as cluster:
        cluster.write_kubeconfig(tmp_path / "kubeconfig")
        binder = asyncio.create_task(bind_in_turn(cluster.store))
        try:
            yield Kubectl(tmp_path)
            assert not binder.done()
        finally:
            binder.cancel()
            await asyncio.gather(binder, return_exceptions=True)


def squeezed(line):
    return " ".join(line.split())


def is_shown(line, out):
    """Return whether `line`, in which `...` stands for any text, is a line of the output."""
    pattern = ".*".join(map(re.escape, squeezed(line).split("...")))
    return any(re.fullmatch(pattern, squeezed(each)) for each in out.splitlines())


@pytest.mark.parametrize("session", [pytest.param(text, id=name) for name, text in SESSIONS.items()])
@pytest.mark.asyncio
async def test_a_session_goes_as_on_a_real_cluster(tmp_path, session):
    async with devcluster(tmp_path) as kubectl:
        command, out = "", ""
        for line in filter(None, map(str.strip, session.splitlines())):
            if line.startswith(("$ ", "! ")):
                command = line[2:]
                out = await kubectl(command, fails=line.startswith("!"))
            elif command.startswith("get pods") and not is_shown(line, out):
                # The pods that a rollout replaces are shown until they have ended.
                out = await until(partial(kubectl, command), partial(is_shown, line))
            else:
                assert is_shown(line, out), f"{line} after kubectl {command}:\n{out}"


@pytest.mark.asyncio
async def test_an_object_is_read_and_put_back(tmp_path):
    async with devcluster(tmp_path) as kubectl:
        await kubectl("run one --image=i")
        await kubectl("wait --for=condition=Ready pod/one")
        yaml = await kubectl("get pod one -o yaml")
        assert await kubectl("replace -f -", yaml) == "pod/one replaced\n"
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "one"}}
        path = "/api/v1/namespaces/default/pods/one/eviction"
        await kubectl(f"create --raw {path} -f -", json.dumps(eviction))
        await kubectl("wait --for=delete pod/one")


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
