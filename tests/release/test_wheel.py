"""The built wheel installs into a clean environment and starts: nothing is found only because of the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.release.artifacts import build_distributions

ROOT = Path(__file__).resolve().parents[2]
#: The folders of the source distribution.
FOLDERS = {"scheduler", "tests", "manifests", "config"}
#: What a build reads.
KEPT = {*FOLDERS, ".gitignore", ".dockerignore", "Makefile", "Dockerfile", "LICENSE", "pyproject.toml"} | {
    path.name for path in ROOT.glob("*.md")
}
#: Any Unix time, for the build to be of.
TIME_S = 1_700_000_000


def _sources() -> set[str]:
    """Return the files of these folders, without what a run leaves behind."""
    files = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file())
    return {str(path.relative_to(ROOT)) for path in files if "__pycache__" not in path.parts}


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution, and the wheel from it, as a release does."""
    folder = tmp_path_factory.mktemp("distributions")
    build_distributions(ROOT, folder, TIME_S)
    return folder


@pytest.fixture(scope="module")
def wheel(distributions: Path) -> Path:
    (built,) = distributions.glob("*.whl")
    return built


def test_a_second_build_elsewhere_is_equal_byte_for_byte(distributions: Path, tmp_path: Path) -> None:
    """Neither the folder, nor the times and modes of files, nor the umask leave a trace."""
    copy = tmp_path / "elsewhere"
    shutil.copytree(
        ROOT,
        copy,
        symlinks=True,
        ignore=lambda folder, names: {*names} - KEPT if Path(folder) == ROOT else {*names} & {"__pycache__"},
    )
    for path in copy.rglob("*.py"):
        path.chmod(0o600)
        os.utime(path, (0, 0))
    (tmp_path / "again").mkdir()
    umask = os.umask(0o077)
    try:
        build_distributions(copy, tmp_path / "again", TIME_S)
    finally:
        os.umask(umask)
    first = {path.name: path.read_bytes() for path in distributions.iterdir()}
    assert {path.suffix for path in distributions.iterdir()} == {".whl", ".gz"}
    assert {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()} == first


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_wheel_installs_into_a_clean_environment_and_starts(wheel: Path, tmp_path: Path) -> None:
    """The environment has the declared dependencies alone, and commands run outside the checkout."""
    environment_folder = str(tmp_path / "env")
    # A fifth of pip's time: uv keeps what it has installed before, and compiles nothing.
    uv = [sys.executable, "-m", "uv", "--quiet"]
    subprocess.run([*uv, "venv", "--python", sys.executable, environment_folder], check=True)
    subprocess.run([*uv, "pip", "install", "--python", environment_folder, str(wheel)], check=True)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    installed = tmp_path / "env" / "bin" / "affinity-scheduler"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [installed, *arguments], capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=60
        )

    assert run("--version").stdout.startswith("affinity-scheduler ")
    config = ROOT / "config" / "affinity-scheduler.yaml"
    checked = run("check-config", str(config))
    assert (checked.returncode, checked.stderr) == (0, "")
    refused = run("run", "--kubeconfig", str(tmp_path / "absent"))
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1


def test_the_wheel_holds_the_product_and_no_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"scheduler", "affinity_scheduler"}
    assert "scheduler/py.typed" in names
    assert "scheduler/README.md" in names
    page = {"index.html", "app.js", "style.css", "views/now.js", "vendor/uplot.js", "vendor/preact.LICENSE"}
    assert {f"scheduler/tools/page/ui/{name}" for name in page} <= set(names)


def test_the_wheel_and_the_source_distribution_hold_the_license(wheel: Path, distributions: Path) -> None:
    license_text = (ROOT / "LICENSE").read_bytes()
    assert b"Apache License" in license_text
    archive = zipfile.ZipFile(wheel)
    (info,) = {name.split("/")[0] for name in archive.namelist() if ".dist-info/" in name}
    assert archive.read(f"{info}/licenses/LICENSE") == license_text
    metadata = archive.read(f"{info}/METADATA").decode()
    assert "\nLicense-Expression: Apache-2.0\nLicense-File: LICENSE\n" in metadata
    (built,) = distributions.glob("*.tar.gz")
    with tarfile.open(built) as sources:
        held = {name.partition("/")[2]: name for name in sources.getnames()}
        assert {
            "LICENSE",
            "CHANGELOG.md",
            "COMPATIBILITY.md",
            "CONFORMANCE.md",
            "CONTRIBUTING.md",
            "MAINTAINERS.md",
            "README.md",
            "SECURITY.md",
            "pyproject.toml",
        } <= held.keys()
        assert {name.partition("/")[0] for name in held if "/" in name} == FOLDERS
        assert _sources() <= held.keys()
        file = sources.extractfile(held["LICENSE"])
        assert file is not None
        assert file.read() == license_text
