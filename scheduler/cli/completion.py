"""
`affinity-scheduler completion SHELL`: print what a shell runs to complete commands, flags and names.

Pods, nodes, zones and namespaces are those of the cluster that the command line names, the first 500 of each, if it
answers within two seconds. A key press has no place for an error: the command itself reports it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import Iterable, Mapping
from typing import Final, NoReturn
from urllib.parse import quote

import argcomplete
import msgspec
from argcomplete.completers import BaseCompleter, FilesCompleter
from argcomplete.shell_integration import shellcode

from scheduler.errors import ApiError, SettingsError

PROGRAM: Final = "affinity-scheduler"
_TIMEOUT_S: Final = 2.0
#: Where the names of an argument stand, by its metavar; of a kind before a slash, by the kind. `{}` is the namespace.
_PATHS: Final = {
    "POD": "/api/v1/namespaces/{}/pods",
    "Pod": "/api/v1/namespaces/{}/pods",
    "ReplicationController": "/api/v1/namespaces/{}/replicationcontrollers",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "StatefulSet": "/apis/apps/v1/namespaces/{}/statefulsets",
    "DaemonSet": "/apis/apps/v1/namespaces/{}/daemonsets",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "NODE": "/api/v1/nodes",
    "ZONE": "/api/v1/nodes",
    "NS": "/api/v1/namespaces",
}


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""
    labels: Mapping[str, str] | None = None


class _Object(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _Page(msgspec.Struct, frozen=True):
    items: tuple[_Object, ...] = ()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.epilog = (
        f"bash: source <({PROGRAM} completion bash); zsh: the same with zsh, after compinit; "
        f"fish: {PROGRAM} completion fish | source"
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def run(args: argparse.Namespace) -> int:
    """Print the shell's code and return 0."""
    print(shellcode([PROGRAM], shell=args.shell))
    return 0


def complete(parser: argparse.ArgumentParser) -> None:
    """Write what completes the command line of the environment's COMP_LINE, and exit."""
    argcomplete.autocomplete(parser, default_completer=_Names())


def kubectl(arguments: list[str] | None = None) -> NoReturn:
    """Answer `kubectl affinity` for a Tab: as `kubectl_complete-affinity`, kubectl runs it with the words so far."""
    words = sys.argv[1:] if arguments is None else arguments
    line = " ".join([PROGRAM, *words])
    os.environ |= {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line.encode())),
    }
    os.dup2(sys.stdout.fileno(), 8)  # to which argcomplete writes
    from scheduler.cli.main import main

    sys.exit(main([]))


class _Names(BaseCompleter):
    def __call__(
        self,
        *,
        prefix: str,
        action: argparse.Action,
        parser: argparse.ArgumentParser,
        parsed_args: argparse.Namespace,
    ) -> Iterable[str]:
        """Return the names that an argument may have here; files for an argument that names one."""
        metavar = action.metavar if isinstance(action.metavar, str) else ""
        if metavar not in _PATHS:
            files: Iterable[str] = FilesCompleter()(
                prefix=prefix, action=action, parser=parser, parsed_args=parsed_args
            )
            return files
        before, slash, _ = prefix.rpartition("/")
        path = _path_before_slash(before) if metavar == "POD" and slash else _PATHS[metavar]
        try:
            page = asyncio.run(_first_page(parsed_args, path))
        except (ApiError, SettingsError, msgspec.DecodeError, TimeoutError):
            return ()
        if metavar == "ZONE":
            zones = {
                (each.metadata.labels or {}).get("topology.kubernetes.io/zone", "") for each in page.items
            }
            return sorted(zones - {""})
        return [f"{before}{slash}{each.metadata.name}" for each in page.items]


def _path_before_slash(written: str) -> str:
    """Return where the names stand that may follow `deploy/`; another word before the slash is a namespace of pods."""
    from scheduler.tools.explain.workloads import kind_of

    return _PATHS.get(kind_of(written) or "", _PATHS["POD"].format(quote(written, safe="")))


async def _first_page(args: argparse.Namespace, path: str) -> _Page:
    # Imported for a name alone: the client takes half a second.
    from scheduler.cli.query.listing import connect
    from scheduler.cli.query.sources import namespace_of
    from scheduler.daemon.kube.requests import Resource, list_page

    given = vars(args)  # not every command has both
    kubeconfig, context = given.get("kubeconfig"), given.get("context")
    path = path.format(namespace_of(args)) if "{}" in path else path
    async with asyncio.timeout(_TIMEOUT_S), connect(kubeconfig, context, os.environ) as client:
        answer = await client.request(list_page(Resource(path)), timeout_s=_TIMEOUT_S)
    return msgspec.json.decode(answer, type=_Page)
