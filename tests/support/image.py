"""
Runs the image's program as its pods do, on the image's own files where IMAGE_ROOT names them (`make image-check`).

There it has a read-only file system, a user that the image does not know, as OpenShift gives, and of this machine only
one folder. That takes root, and no container engine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.dockerfile import Dockerfile
from tests.support.manifest_files import ROOT

DOCKERFILE: Final = Dockerfile(ROOT / "Dockerfile")
ENTRY_POINT: Final = tuple(DOCKERFILE.last("product", "ENTRYPOINT").words)
HOME: Final = Path("/opt/affinity-scheduler")
IMAGE_ROOT: Final = os.environ.get("IMAGE_ROOT", "")
#: A user and a group as OpenShift gives them.
_USER, _GROUP = 1000680000, 0
_MOUNTED: Final = """
root=$1 folder=$2 user=$3; shift 3
mount --rbind "$root" "$root"
mount -t tmpfs tmpfs "$root/tmp"
mkdir -p "$root$folder"
chmod -R a+rX "$folder"
mount --bind "$folder" "$root$folder"
mount --rbind /dev "$root/dev"
mount --rbind /proc "$root/proc"
mount -o remount,bind,ro "$root"
exec chroot --userspec="$user" --groups= "$root" "$@"
"""


def in_container(
    folder: Path,
    *words: str,
    home: Path | None = None,
    entry: Sequence[str] = ENTRY_POINT,
    first: bool = False,
) -> list[str]:
    """
    Return the command that runs the entry point with these words; it sees the files in `folder`.

    `home`: the environment to run from without an image; None for the checkout, without the entry point. `first`: as
    the first process of a namespace of processes, whose parent is the command.
    """
    namespaces = ["--pid", "--fork"] if first else []
    if IMAGE_ROOT:
        shell = ["sh", "-ec", _MOUNTED, "sh", IMAGE_ROOT, str(folder), f"{_USER}:{_GROUP}"]
        return ["unshare", "--mount", *namespaces, *shell, *_environment(HOME), *entry, *words]
    if home is None:
        return [sys.executable, "-m", "scheduler", *words]
    user = ["unshare", "--user", f"--map-user={_USER}", f"--map-group={_GROUP}", *namespaces] if first else []
    return [*user, *_environment(home), *entry, *words]


def _environment(home: Path) -> list[str]:
    """Return the command that sets the image's variables; jemalloc is only in the image itself."""
    given = dict(each.split("=", 1) for each in DOCKERFILE.last("product", "ENV").words)
    if not IMAGE_ROOT:
        del given["LD_PRELOAD"]
    given["PATH"] = f"{home / 'bin'}:{os.environ['PATH']}"
    return ["env", "--ignore-environment", *(f"{name}={value}" for name, value in given.items())]
