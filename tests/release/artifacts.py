"""
The files of a release, in dist/VERSION: all from the commit, so that two builds of it are equal byte for byte.

The bytes of compressed files follow from Python's zlib too: compare builds of one version of Python.
"""

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.release.changelog import notes
from tests.release.checkout import ReleaseError, commit_time_s, export
from tests.release.locks import NAMES, path_of, read_lock
from tests.release.sbom import bill_of_materials, image_packages
from tests.release.versions import chart_version, require_version

NAME = "affinity-scheduler"
SUMS = "SHA256SUMS"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
#: A repository without tag and digest; a colon is the port of its registry.
_REPOSITORY = re.compile(r"([a-z0-9.-]+(:[0-9]+)?/)?[a-z0-9._-]+(/[a-z0-9._-]+)*")


@dataclass(frozen=True)
class Image:
    """The image that chart and manifests name; without a digest they name it by its tag."""

    repository: str
    digest: str

    @classmethod
    def of(cls, repository: str, digest: str) -> Self:
        """Return the image of these arguments. Raises: ReleaseError if one of them is none."""
        repository = repository or NAME
        if not _REPOSITORY.fullmatch(repository):
            raise ReleaseError(
                f"IMAGE: found {repository}, expected a repository without tag, such as ghcr.io/example/{NAME}"
            )
        if digest and not _DIGEST.fullmatch(digest):
            raise ReleaseError(f"IMAGE_DIGEST: found {digest}, expected sha256: and 64 hexadecimal digits")
        return cls(repository, digest)

    def reference(self, version: str) -> str:
        """Return what a manifest names."""
        return f"{self.repository}@{self.digest}" if self.digest else f"{self.repository}:{version}"


def build_release(root: Path, version: str, image: Image) -> Iterator[str]:
    """
    Make dist/VERSION from the checkout's commit, and yield a line for each file, and what is missing.

    Raises: ReleaseError if the checkout is not clean, or is not of this version; nothing is written then.
    """
    time_s = commit_time_s(root)
    require_version(root, version)
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder, "source"), Path(folder, "made")
        source.mkdir()
        made.mkdir()
        export(root, source)
        text = notes((source / "CHANGELOG.md").read_text(), version)
        if image.digest:
            text += f"\nBuilt and run by `make image-check`: {image.reference(version)}\n"
        (made / "RELEASE_NOTES.md").write_text(text)
        build_distributions(source, made, time_s)
        _write_chart(source, made, image, time_s)
        _write_manifests(source, made, version, image, time_s)
        _write_bills(source, made, version, image, time_s)
        for lock in NAMES:
            shutil.copyfile(path_of(source, lock), made / f"{NAME}-{version}.{lock}.lock.txt")
        write_sums(made)
        target = root / "dist" / version
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(made, target)
    for path in sorted(target.iterdir()):
        yield f"{path.relative_to(root)}"
    if not image.digest:
        yield (
            f"no IMAGE_DIGEST: chart and manifests name {image.reference(version)}, "
            "by a tag, which a registry can move to another image"
        )


def build_distributions(source: Path, target: Path, time_s: int) -> None:
    """Build the source distribution, and from it the wheel, with the backend of this environment."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(source)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time_s)}
    # A build is of the files alone, whatever tree Python's path has.
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=target, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines() or ["no message"]
        raise ReleaseError(f"python -m build: found {said[-1]}, expected a wheel")


def _files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def _write_chart(source: Path, target: Path, image: Image, time_s: int) -> None:
    files = _files(source / "manifests" / "chart")
    values = files["values.yaml"].decode()
    for field, value in (("repository", image.repository), ("digest", image.digest)):
        values, n_set = re.subn(rf"(?m)^(  {field}: ).*$", rf'\g<1>"{value}"', values, count=1)
        if n_set != 1:
            raise ReleaseError(f"manifests/chart/values.yaml: found no {field} of the image, expected one")
    files["values.yaml"] = values.encode()
    archive = packed({f"{NAME}/{name}": content for name, content in files.items()}, time_s)
    (target / f"{NAME}-chart-{chart_version(source)}.tgz").write_bytes(archive)


def _write_manifests(source: Path, target: Path, version: str, image: Image, time_s: int) -> None:
    """Pack the manifests without the chart; what names the image names this one."""
    named = f"image: {NAME}:{version}".encode()
    released = f"image: {image.reference(version)}".encode()
    files = {
        f"{NAME}-manifests-{version}/{name}": content.replace(named, released)
        for name, content in _files(source / "manifests").items()
        if not name.startswith("chart/")
    }
    (target / f"{NAME}-manifests-{version}.tgz").write_bytes(packed(files, time_s))


def _write_bills(source: Path, target: Path, version: str, image: Image, time_s: int) -> None:
    of_image = {"type": "container", "name": image.repository, "version": image.digest or version}
    of_wheel = {"type": "library", "purl": f"pkg:pypi/{NAME}@{version}"}
    pyproject = source / "pyproject.toml"
    for name, packages, component in (
        ("image", image_packages(source), of_image),
        ("wheel", read_lock(path_of(source, "wheel")), of_wheel),
    ):
        bill = bill_of_materials(packages, pyproject, component, time_s)
        (target / f"{NAME}-{version}.{name}.cdx.json").write_bytes(bill)


def packed(files: Mapping[str, bytes], time_s: int) -> bytes:
    """Return a .tar.gz of files by name, whose bytes depend on nothing but their content and this time."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in sorted(files):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mtime, entry.mode = len(files[name]), time_s, 0o644
            archive.addfile(entry, io.BytesIO(files[name]))
    return gzip.compress(tar.getvalue(), mtime=0)


def write_sums(folder: Path) -> None:
    """Write the SHA-256 of every file, as `sha256sum --check` reads it."""
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(folder.iterdir())
    ]
    (folder / SUMS).write_text("".join(lines))
