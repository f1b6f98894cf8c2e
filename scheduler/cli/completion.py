"""
`affinity-scheduler completion SHELL`: print what a shell runs to complete commands, flags and names.

Pods, nodes, zones and namespaces are those of the cluster that the command line names, the first 500 of each, if it
answers within two seconds. A key press has no place for an error: the command itself reports it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable
from typing import Final, NoReturn
from urllib.parse import quote

import argcomplete
from argcomplete.completers import BaseCompleter, FilesCompleter
from argcomplete.shell_integration import shellcode

PROGRAM: Final = "affinity-scheduler"
#: The path that lists the names for an argument, by its metavar; `{}` is the namespace. After `KIND/` it is by kind.
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add this command's arguments."""
    parser.add_argument(
        "shell",
        choices=("bash", "zsh", "fish"),
        help=f"bash: source <({PROGRAM} completion bash); zsh: the same with zsh, after compinit; "
        f"fish: {PROGRAM} completion fish | source",
    )


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
        path = _PATHS[metavar]
        if metavar == "POD" and slash:
            from scheduler.tools.explain.workloads import kind_of

            # What follows a kind such as `deploy/`, or the pods of a namespace.
            path = _PATHS.get(kind_of(before) or "", path.format(quote(before, safe="")))
        # Imported for a name alone: the client takes half a second.
        from scheduler.cli.query.listing import listed_names

        found = listed_names(parsed_args, path)
        if metavar == "ZONE":
            return sorted({labels.get("topology.kubernetes.io/zone", "") for _, labels in found} - {""})
        # Also the names of a list before this one.
        written = prefix[: max(prefix.rfind("/"), prefix.rfind(",")) + 1]
        return [f"{written}{name}" for name, _ in found]
