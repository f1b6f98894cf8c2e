"""`affinity-scheduler devcluster`: serve an embedded cluster to kubectl, until stopped."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shlex
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from scheduler.engine.syntax.names import label_key_faults, label_value_faults
from scheduler.engine.syntax.quantity import QuantityError, non_negative_quantity, parse_quantity
from scheduler.engine.syntax.words import counted
from scheduler.errors import SettingsError
from scheduler.sandbox.devcluster.bootstrap import NODE_AMOUNTS
from scheduler.sandbox.devcluster.cluster import DevCluster
from scheduler.sandbox.devcluster.versions import DEFAULT_MINOR, NEWEST_MINOR, OLDEST_MINOR

_KUBECONFIG: Final = "devcluster.kubeconfig"
_NOT_SERVED: Final = (
    "Not here: containers and services that answer, networks, autoscaling,\n"
    "cron jobs that start, admission policies, CRD schemas, failures of nodes\n"
    "(no taint, and the pods of a deleted node stay), and the default\n"
    "scheduler: pods need schedulerName: affinity-scheduler."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments to `parser`."""
    parser.add_argument(
        "--nodes", type=int, default=6, metavar="N", help="number of nodes (default %(default)s)"
    )
    parser.add_argument(
        "--zones", type=int, default=3, metavar="Z", help="number of zones (default %(default)s)"
    )
    parser.add_argument(
        "--node-label",
        action="append",
        default=[],
        metavar="KEY=VALUE[,VALUE...]",
        help="a label of every node; of several values, each node gets the next one; may be repeated",
    )
    parser.add_argument(
        "--node-resource",
        action="append",
        default=[],
        metavar="NAME=QUANTITY[,QUANTITY...]",
        help="a resource of every node, such as nvidia.com/gpu=8, or cpu=16 in place of 4; of several quantities, each "
        "node gets the next one, so that as many as there are zones give each zone its own; may be repeated",
    )
    parser.add_argument(
        "--gpus",
        type=int,
        default=0,
        metavar="N",
        help="GPUs of each node, for claims of the device class gpu.nvidia.com and for nvidia.com/gpu (default none)",
    )
    parser.add_argument(
        "--gpu-fabric",
        type=int,
        default=0,
        metavar="N",
        help="GPUs that one fabric joins: equal values of their attribute gpu.nvidia.com/fabric (default none)",
    )
    parser.add_argument(
        "--version",
        default=f"1.{DEFAULT_MINOR}",
        metavar="1.N",
        help=f"the version of Kubernetes that the cluster is of, 1.{OLDEST_MINOR} to 1.{NEWEST_MINOR}: what it answers "
        "at /version, the groups that it serves and the fields that it drops (default %(default)s)",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=0,
        metavar="P",
        help="port on 127.0.0.1; 0, the default, chooses a free one",
    )
    parser.add_argument(
        "--ui", action="store_true", help="run the scheduler too, and print the address of its page"
    )
    parser.add_argument(
        "--kubeconfig",
        default=_KUBECONFIG,
        metavar="FILE",
        help="kubeconfig to write; removed when the cluster stops (default %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Raises: SettingsError for bad input."""
    for flag, found, least, most in (
        ("--nodes", args.nodes, 0, 100_000),
        ("--zones", args.zones, 1, 1_000),
        ("--gpus", args.gpus, 0, 128),
        ("--gpu-fabric", args.gpu_fabric, 0, 100_000),
        ("--port", args.port, 0, 65_535),
    ):
        if not least <= found <= most:
            raise SettingsError(flag, "", str(found), f"a number from {least} to {most}")
    if args.gpu_fabric and not args.gpus:
        raise SettingsError("--gpu-fabric", "", str(args.gpu_fabric), "--gpus N beside it")
    labels = dict(map(node_label, args.node_label))
    resources = dict(map(node_resource, args.node_resource))
    minor = _minor(args.version)
    # No token: kubectl sends none over plain HTTP, and the listener is on the loopback interface alone.
    cluster = DevCluster(
        nodes=args.nodes,
        zones=args.zones,
        port=args.port,
        controllers=True,
        node_labels=labels,
        node_resources=resources,
        gpus_per_node=args.gpus,
        gpus_per_fabric=args.gpu_fabric,
        minor=minor,
    )
    size = f"{counted(args.nodes, 'node')} in {counted(min(args.nodes, args.zones), 'zone')}"
    return asyncio.run(_serve(cluster, size, Path(args.kubeconfig).resolve(), with_page=args.ui))


def _minor(version: str) -> int:
    minor_by_version = {f"1.{minor}": minor for minor in range(OLDEST_MINOR, NEWEST_MINOR + 1)}
    if version not in minor_by_version:
        raise SettingsError("--version", "", version, f"one of {', '.join(minor_by_version)}")
    return minor_by_version[version]


def node_label(text: str) -> tuple[str, list[str]]:
    """Return the key and the values of a `--node-label`. Raises: SettingsError."""
    key, equals, values = text.partition("=")
    faults = label_key_faults(key) + [
        fault for value in values.split(",") for fault in label_value_faults(value)
    ]
    if not equals or faults:
        raise SettingsError("--node-label", "", repr(text), "; ".join(faults) or "KEY=VALUE")
    return key, values.split(",")


def node_resource(text: str) -> tuple[str, list[str]]:
    """Return the name and the quantities of a `--node-resource`. Raises: SettingsError."""
    name, equals, values = text.partition("=")
    quantities = values.split(",")
    if not equals:
        raise SettingsError("--node-resource", "", repr(text), "NAME=QUANTITY")
    expected = label_key_faults(name)
    if "/" not in name and name not in NODE_AMOUNTS:
        expected.append(f"one of {', '.join(NODE_AMOUNTS)}, or a name with a domain such as nvidia.com/gpu")
    if not all(_is_amount(name, quantity) for quantity in quantities):
        expected.append("CPUs such as 16 or 500m" if name == "cpu" else "whole numbers such as 8 or 16Gi")
    if expected:
        raise SettingsError("--node-resource", "", repr(text), "; ".join(expected))
    return name, quantities


def _is_amount(name: str, text: str) -> bool:
    """Return whether a node may have so much of the resource: of all but CPUs whole numbers."""
    try:
        quantity = non_negative_quantity(text)
    except QuantityError:
        return False
    return name == "cpu" or quantity == parse_quantity(quantity.value())


async def _serve(cluster: DevCluster, size: str, kubeconfig: Path, *, with_page: bool) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        await cluster.start()
    except OSError as error:
        raise SettingsError("--port", "", f"{cluster.port} in use", "a free port") from error
    try:
        with _written(cluster, kubeconfig):
            print(f"{size} at {cluster.url}. Ctrl-C ends and deletes it.")
            print(_NOT_SERVED)
            print()
            if with_page:
                return await _schedule(stop, kubeconfig)
            print("Schedule its pods, in a second terminal:")
            print(f"  affinity-scheduler run --kubeconfig {shlex.quote(str(kubeconfig))}")
            print("Look at it, in a third one:")
            _print_kubectl(kubeconfig)
            await stop.wait()
    finally:
        await cluster.stop()
    return 0


def _print_kubectl(kubeconfig: Path) -> None:
    print(f"  export KUBECONFIG={shlex.quote(str(kubeconfig))}")
    print("  kubectl get nodes", flush=True)


async def _schedule(stop: asyncio.Event, kubeconfig: Path) -> int:
    """Run a scheduler for the cluster until stopped. Return its exit code if it ends first."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # Its own session: Ctrl-C in the terminal reaches this command alone, which ends it.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "scheduler", "run", "--kubeconfig", str(kubeconfig), "--port", str(port)),
        start_new_session=True,
    )
    ended = asyncio.ensure_future(process.wait())
    stopped = asyncio.ensure_future(stop.wait())
    try:
        print(f"The scheduler runs; its page is at http://127.0.0.1:{port}/ui/")
        print("Look at the cluster, in a second terminal:")
        _print_kubectl(kubeconfig)
        await asyncio.wait((ended, stopped), return_when=asyncio.FIRST_COMPLETED)
        return 0 if stop.is_set() else await ended
    finally:
        stopped.cancel()
        if process.returncode is None:
            process.terminate()
        await ended


@contextlib.contextmanager
def _written(cluster: DevCluster, kubeconfig: Path) -> Iterator[None]:
    """Keep a new kubeconfig on disk while the cluster runs. A file that is there already, or another one, is kept."""
    try:
        cluster.write_kubeconfig(kubeconfig, overwrite=False)
    except FileExistsError as error:
        expected = "a new file; if it is left over from a devcluster that was killed, remove it"
        raise SettingsError("--kubeconfig", "", f"{kubeconfig}, which exists", expected) from error
    except OSError as error:
        found = f"{kubeconfig}: {error.strerror or error}"
        raise SettingsError("--kubeconfig", "", found, "a file that can be written") from error
    written = kubeconfig.read_bytes()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if kubeconfig.read_bytes() == written:
                kubeconfig.unlink()
