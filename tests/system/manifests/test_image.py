"""
The image, checked without a container engine.

The tests run the commands of the build stages in a temporary folder. The result is the content of the image.
"""

import asyncio
import fnmatch
import json
import os
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.accounts import account_kubeconfig, new_account
from tests.support.cluster import Cluster, kubeconfig_text
from tests.support.image import DOCKERFILE, HOME, IMAGE_ROOT, in_container
from tests.support.manifest_files import BASE, MANIFESTS, ROOT, container, one, resources
from tests.support.ports import free_port
from tests.support.waiting import TIMEOUT_S, until
from tests.system.processes.conftest import embedded

#: Prints every file that a program opens for writing, creates, renames or removes.
_SPY = """
import json, os, sys
def tell(event, args):
    wrote = event == "open" and args[0] != os.devnull and isinstance(args[0], (str, bytes)) and (
        args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    if wrote or event in ("os.mkdir", "os.rename", "os.remove", "os.symlink", "shutil.move"):
        print("WROTE", event, args, file=sys.stderr)
sys.addaudithook(tell)
from scheduler.cli.main import main
sys.exit(main(json.loads(sys.argv[1])))
"""


def test_the_default_target_is_the_product():
    assert list(DOCKERFILE.stages)[-1] == "product"


@pytest.mark.parametrize(("stage", "command"), [("product", "run"), ("demo", "demo")])
def test_an_image_runs_its_command_as_the_user_of_the_manifests(stage, command):
    assert DOCKERFILE.last(stage, "ENTRYPOINT").words[-1] == "affinity-scheduler"
    assert DOCKERFILE.last(stage, "CMD").words == [command]
    context = one(resources(BASE), "Deployment")["spec"]["template"]["spec"]["securityContext"]
    # A number, by which a kubelet sees that it is not root. A platform may give the pod another one.
    assert DOCKERFILE.last(stage, "USER").text == "65532:65532"
    assert context == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert "PYTHONDONTWRITEBYTECODE=1" in DOCKERFILE.last(stage, "ENV").words


@pytest.mark.parametrize("stage", ["product", "demo"])
def test_an_image_gives_memory_back(stage):
    """Python's allocations go to the library that the image installs and loads."""
    installs = [each.text for each in DOCKERFILE.lineage(stage) if each.keyword == "RUN"]
    assert any("apt-get install" in text and '"libjemalloc2=${JEMALLOC}"' in text for text in installs)
    assert {"PYTHONMALLOC=malloc", "LD_PRELOAD=libjemalloc.so.2"} <= {*DOCKERFILE.last(stage, "ENV").words}


@pytest.mark.parametrize("stage", ["product", "demo"])
def test_an_image_has_the_version_of_the_package(stage):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert DOCKERFILE.last(stage, "ARG").text == f"VERSION={version}"
    assert 'org.opencontainers.image.version="${VERSION}"' in DOCKERFILE.last(stage, "LABEL").text


def test_images_copy_only_the_environment_from_earlier_stages():
    for image in ("product", "demo"):
        copied = [each.words for each in DOCKERFILE.lineage(image) if each.keyword == "COPY"]
        assert copied == [[f"--from={image}-build", str(HOME), str(HOME)]]
    bases = {stage.base for stage in DOCKERFILE.stages.values()} - set(DOCKERFILE.stages)
    assert bases == {"${BASE}"}, "interpreter and environment must be of one image"
    assert {each.text for each in DOCKERFILE.globals} >= {"BASE=python:${PYTHON}-slim"}


def test_a_proxys_certificate_authority_stays_out_of_the_image():
    """It is for the downloads of the build alone."""
    assert "CERTIFICATE_AUTHORITY" in {each.text for each in DOCKERFILE.lineage("product-build")}
    assert not [
        each for each in DOCKERFILE.lineage("product") if "AUTHORITY" in each.text or "CERT" in each.text
    ]


def test_the_port_is_the_one_of_the_manifests():
    (port,) = container(one(resources(BASE), "Deployment"))["ports"]
    assert DOCKERFILE.last("product", "EXPOSE").text == str(port["containerPort"])


def test_the_build_context_has_little_more_than_is_copied():
    *patterns, no_cache, no_bytecode = [
        line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")
    ]
    assert patterns[0] == "*"
    let_in = {pattern.removeprefix("!") for pattern in patterns[1:]}
    copied = {
        word
        for stage in DOCKERFILE.stages.values()
        for each in stage.own
        if each.keyword == "COPY" and not each.text.startswith("--from")
        for word in each.words[:-1]
    }
    assert let_in == copied
    assert all((ROOT / path).exists() for path in copied)
    assert (no_cache, no_bytecode) == ("**/__pycache__", "**/*.pyc")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the product image's environment: the image's own, or the Dockerfile's commands with this interpreter."""
    if IMAGE_ROOT:
        return Path(IMAGE_ROOT, *HOME.parts[1:])
    folder = tmp_path_factory.mktemp("image")
    source, home = folder / "src", folder / "environment"
    source.mkdir()
    tools = folder / "bin"
    tools.mkdir()
    for name in ("python", "pip"):
        (tools / name).write_text(
            f'#!/bin/sh\nexec {sys.executable} {"-m pip " if name == "pip" else ""}"$@"\n'
        )
        (tools / name).chmod(0o755)
    of_this_run = {"PYTHONPATH", "PYTHONPYCACHEPREFIX"}
    environment = {name: value for name, value in os.environ.items() if name not in of_this_run}
    environment["PATH"] = f"{tools}:{os.environ['PATH']}"
    for each in DOCKERFILE.lineage("product-build"):
        if each.keyword == "COPY":
            *names, target = each.words
            for name in names:
                _copy(ROOT / name, source / target / ("" if (ROOT / name).is_dir() else Path(name).name))
        elif each.keyword == "RUN":
            # The image must not contain a package cache, but the test uses the machine's.
            command = each.text.replace(str(HOME), str(home)).replace("--no-cache-dir ", "")
            subprocess.run(
                ["sh", "-ec", command], check=True, cwd=source, env=environment, capture_output=True
            )
    return home


@pytest.fixture(scope="module")
def scheduler(built: Path) -> Path:
    (found,) = built.glob("lib/python3.*/site-packages/scheduler")
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
class TestProduct:
    def test_it_has_no_sandbox_and_no_tests(self, scheduler):
        files = {str(path.relative_to(scheduler)) for path in scheduler.rglob("*")}
        for unwanted in ("*sandbox*", "*demo*", "*/test_*"):
            assert fnmatch.filter(files, unwanted) == []
        assert "cli/run.py" in files
        assert not (scheduler.parent / "pip").exists()
        assert [*scheduler.parent.rglob("tests")] == []
        assert [*scheduler.parent.glob("*.md"), *scheduler.parent.glob("*.toml")] == []

    def test_it_has_the_license(self, scheduler):
        (license_file,) = scheduler.parent.glob("affinity_scheduler-*.dist-info/licenses/LICENSE")
        assert license_file.read_bytes() == (ROOT / "LICENSE").read_bytes()

    def test_every_module_can_be_imported(self, built, scheduler, tmp_path):
        """No module needs one that the image leaves out."""
        modules = sorted(
            ".".join(path.relative_to(scheduler.parent).with_suffix("").parts)
            for path in scheduler.rglob("*.py")
            # A plugin of pytest, which the image has no need of.
            if path.stem not in ("__init__", "__main__", "pytest_plugin")
        )
        program = f"import importlib; [importlib.import_module(m) for m in {modules}]"
        command = in_container(tmp_path, "-c", program, home=built, entry=("python",))
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    def test_every_module_has_its_bytecode(self, scheduler):
        modules = list(scheduler.parent.rglob("*.py"))
        assert len(modules) > 500
        tag = f"c{scheduler.parents[1].name.replace('3.', '-3')}"
        missing = [m for m in modules if not (m.parent / "__pycache__" / f"{m.stem}.{tag}.pyc").exists()]
        assert missing == []

    def test_the_commands_of_the_manifests_work(self, built, tmp_path):
        assert "--bind-address" in _run(built, tmp_path, "run", "--help").stdout
        checked = _run(built, tmp_path, "check-config", str(_mounted(BASE, tmp_path)))
        assert (checked.returncode, checked.stderr) == (0, "")
        refused = _run(built, tmp_path, "run", "--kubeconfig", "absent")
        assert refused.returncode == 2
        assert len(refused.stderr.splitlines()) == 1

    @pytest.mark.parametrize("command", ["demo", "devcluster"])
    def test_commands_that_need_the_embedded_cluster_say_that_it_is_missing(self, built, tmp_path, command):
        said = _run(built, tmp_path, command)
        assert said.returncode == 2
        assert said.stderr.splitlines() == [
            f"affinity-scheduler {command}: found an image without the embedded cluster, "
            "expected the image of the Dockerfile's demo target"
        ]

    async def test_it_schedules_and_writes_no_file(self, built, tmp_path):
        """As in the pod: from the image's files, without a writable file system."""
        async with embedded(tmp_path, nodes=1) as cluster:
            await cluster.api.enter_namespace()
            config = str(_mounted(BASE, tmp_path))
            command = [
                "run",
                "--config",
                config,
                "--kubeconfig",
                cluster.kubeconfig,
                "--port",
                str(free_port()),
            ]
            process = await asyncio.create_subprocess_exec(
                *in_container(tmp_path, "-c", _SPY, json.dumps(command), home=built, entry=("python",)),
                stderr=asyncio.subprocess.PIPE,
                cwd=tmp_path,
            )
            try:
                await cluster.add_pod("fits")
                await cluster.add_pod("does-not", cpu="1000")
                await cluster.node_of("fits")
                await cluster.condition("does-not", "0/1 nodes are available: 1 Insufficient cpu.")
            finally:
                process.send_signal(signal.SIGTERM)
                said = (await asyncio.wait_for(process.communicate(), TIMEOUT_S))[1].decode()
                print(said)  # shown if it fails
        assert process.returncode == 0
        assert "WROTE" not in said

    def test_the_spy_sees_what_is_written(self, built, tmp_path):
        """Otherwise the test above would prove nothing."""
        spy = _SPY.replace("from scheduler.cli.main import main", "main = lambda _: open('x', 'w').close()")
        command = in_container(tmp_path, "-c", spy, "[]", home=built, entry=("python",))
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert "WROTE" in done.stderr


@pytest.fixture
def namespaces(built: Path, tmp_path: Path) -> None:
    command = in_container(tmp_path, entry=("true",), home=built, first=True)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no namespace of processes may be made here: {done.stderr}")


def _daemon(folder: Path, account: str) -> Callable[[Cluster, Path], list[str]]:
    """Return a function that returns the arguments of the folder's container, with files and ports of the test."""

    def arguments(cluster: Cluster, tmp_path: Path) -> list[str]:
        assert cluster.devcluster is not None
        own = account == "scheduler"
        kubeconfig = cluster.kubeconfig if own else account_kubeconfig(cluster.devcluster, account, tmp_path)
        given = container(one(resources(folder), "Deployment"))["args"]
        mounted = [f"--config={_mounted(folder, tmp_path)}"] if account != "webhook" else []
        listening = [f"--webhook-port={free_port()}"] if account == "webhook" else []
        # What the kubelet puts in, by the manifest's `fieldRef`.
        given = [each.replace("$(NAMESPACE)", "kube-system") for each in given]
        return [*given, *mounted, *listening, f"--kubeconfig={kubeconfig}", f"--port={free_port()}"]

    return arguments


def _mounted(folder: Path, tmp_path: Path) -> Path:
    """Return the folder's configuration where a container sees it."""
    return Path(shutil.copy(folder / "configuration.yaml", tmp_path / "configuration.yaml"))


def _shadow(cluster: Cluster, tmp_path: Path) -> list[str]:
    assert cluster.devcluster is not None
    token = new_account(cluster.devcluster, "shadow", MANIFESTS / "shadow" / "role.yaml")
    kubeconfig = tmp_path / "shadow.kubeconfig"
    kubeconfig.write_text(kubeconfig_text(cluster.devcluster.url, token=token))
    return ["shadow", f"--kubeconfig={kubeconfig}"]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize(
    ("arguments", "moments_s"),
    [
        # Before a daemon has its own handler, all commands have the same.
        pytest.param(_daemon(BASE, "scheduler"), (0.05, 0.4, 2.0), id="run"),
        pytest.param(_daemon(MANIFESTS / "enforcer", "enforcer"), (2.0,), id="enforce"),
        pytest.param(_daemon(MANIFESTS / "webhook", "webhook"), (2.0,), id="webhook"),
        pytest.param(_shadow, (2.0,), id="shadow"),
    ],
)
async def test_a_containers_first_process_ends_at_sigterm(built, tmp_path, arguments, moments_s):
    """The kernel drops what such a process has no handler for. Its user is one that a platform gives."""
    async with embedded(tmp_path, nodes=1) as cluster:
        command = in_container(tmp_path, *arguments(cluster, tmp_path), home=built, first=True)
        for delay_s in moments_s:
            process = await asyncio.create_subprocess_exec(*command, cwd="/", stdout=subprocess.DEVNULL)
            pid = await until(partial(_child, process.pid), what="the program")
            try:
                await asyncio.sleep(delay_s)  # the moment is what is tried
                os.kill(pid, signal.SIGTERM)
                assert await asyncio.wait_for(process.wait(), TIMEOUT_S) in (0, 128 + signal.SIGTERM), delay_s
            finally:
                if process.returncode is None:
                    os.kill(pid, signal.SIGKILL)
                    await process.wait()
            leases = (await cluster.api.get("/apis/coordination.k8s.io/v1/leases")).ok["items"]
            assert not [each for each in leases if each["spec"]["holderIdentity"]], delay_s


async def _child(pid: int) -> int:
    """Return the only child of the process once it has come to the entry point, 0 before."""
    for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        command = Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")
        if command[0] not in (b"unshare", b"sh", b"chroot") and b"--ignore-environment" not in command:
            return int(each)
    return 0


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


def _run(built: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = in_container(folder, *arguments, home=built)
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=60)
