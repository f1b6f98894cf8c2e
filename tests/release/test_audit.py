"""Each check of the audit finds a planted defect, and nothing where there is none."""

import hashlib
import shutil
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.release import audit
from tests.release.checkout import ROOT
from tests.release.locks import FOLDER, NAMES, path_of, read_lock
from tests.release.sbom import image_packages


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of what the checks of locks and imports read, whose product has one module."""
    shutil.copyfile(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    shutil.copytree(ROOT / FOLDER, tmp_path / FOLDER)
    (tmp_path / "scheduler").mkdir()
    return tmp_path


def _lock_findings(root: Path) -> list[str]:
    return list(audit.lock_findings(root, {lock: read_lock(path_of(root, lock)) for lock in NAMES}))


def _change(root: Path, lock: str, old: str, new: str) -> None:
    text = path_of(root, lock).read_text()
    assert old in text
    path_of(root, lock).write_text(text.replace(old, new, 1))


def _version(root: Path, lock: str, name: str) -> str:
    (version,) = {each.version for each in read_lock(path_of(root, lock)) if each.name == name}
    assert version is not None
    return version


def test_the_locks_pin_everything_that_is_declared(root):
    assert _lock_findings(root) == []


@pytest.mark.parametrize(
    ("lock", "name", "written", "found"),
    [
        ("ci", "pluggy", "pluggy>={}", "found no exact version, expected =="),
        # Its hashes stand below another name.
        ("wheel", "aiohttp", "aiohttp=={}\nsniffio==1.0", "found no hash, expected one for each file"),
        ("image", "yarl", "yarl==1.99.0", "found 1.99.0, expected the version of lock ci"),
    ],
)
def test_a_package_that_is_not_pinned_as_in_every_lock_is_found(root, lock, name, written, found):
    version = _version(root, lock, name)
    _change(root, lock, f"\n{name}=={version}", "\n" + written.format(version))
    assert f"{lock}: {name}: {found}" in _lock_findings(root)


def test_a_dependency_that_is_not_locked_is_found(root):
    text = (root / "pyproject.toml").read_text()
    (root / "pyproject.toml").write_text(text.replace('"PyYAML>=6,<7",', '"PyYAML>=6,<7",\n"left-pad>=1",'))
    assert _lock_findings(root) == [
        f"{lock}: left-pad: found nothing, expected >=1" for lock in ("ci", "image", "wheel")
    ]


def test_a_range_that_the_lock_does_not_answer_is_found(root):
    text = (root / "pyproject.toml").read_text()
    (root / "pyproject.toml").write_text(text.replace('"yarl>=1.18,<2"', '"yarl>=3"'))
    locked = _version(root, "wheel", "yarl")
    assert f"wheel: yarl: found {locked}, expected >=3" in _lock_findings(root)


def test_every_dependency_is_imported_and_every_import_declared():
    assert audit.import_findings(ROOT) == []


def test_an_import_that_is_not_declared_and_a_dependency_that_nothing_imports_are_found(root):
    """Also where another dependency happens to bring it."""
    (root / "scheduler" / "one.py").write_text("from . import two\nimport multidict\nimport aiohttp\n")
    found = {line.partition(":")[0] for line in audit.import_findings(root)}
    assert {"multidict", "numpy"} <= found
    assert "aiohttp" not in found


ALLOWED = {"MIT", "Apache-2.0", "BSD-3-Clause", "ISC", "MPL-2.0"}


@pytest.mark.parametrize(
    ("licence", "is_allowed"),
    [
        ("MIT", True),
        ("MIT License", True),
        ("Mozilla Public License 2.0 (MPL 2.0)", True),
        ("Apache-2.0 OR GPL-3.0-only", True),
        ("(GPL-3.0-only OR MIT) AND ISC", True),
        ("Apache Software License; MIT License", True),
        ("DFSG approved; MIT License", True),
        ("Apache-2.0 AND GPL-3.0-only", False),
        ("MIT License; GNU General Public License v3 (GPLv3)", False),
        ("GPL-3.0-only", False),
        ("UNKNOWN", False),
        ("", False),
    ],
)
def test_a_licence_that_is_not_on_the_list_is_found(licence, is_allowed):
    (yarl,) = (each for each in read_lock(path_of(ROOT, "wheel")) if each.name == "yarl")
    installed = {"yarl": (yarl.version or "", licence)}
    found = list(audit.licence_findings(installed, [yarl], ALLOWED))
    assert bool(found) is not is_allowed


def test_a_package_that_is_not_installed_as_locked_has_no_known_licence():
    (yarl,) = (each for each in read_lock(path_of(ROOT, "wheel")) if each.name == "yarl")
    for installed, has in (({}, "nothing"), ({"yarl": ("1.0", "MIT")}, "1.0")):
        (found,) = audit.licence_findings(installed, [yarl], ALLOWED)
        assert found == f"yarl: found {has} installed, expected {yarl.version} as locked"


def test_licences_are_read_by_pip_licenses():
    assert audit.installed_licences()["msgspec"][1] == "BSD-3-Clause"


FLAW = {"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["1.1"]}]}
SOUND = {"name": "b", "version": "1", "vulns": []}
UNKNOWN = {"name": "c", "skip_reason": "Dependency not found on PyPI and could not be audited: c (1)"}


@pytest.mark.parametrize(
    ("packages", "findings", "unchecked"),
    [
        ([SOUND], (), ""),
        ([FLAW, SOUND], ("a 1: found CVE-1, expected 1.1",), ""),
        ([SOUND, UNKNOWN], (), "the database knows 1 of 2 packages, not c"),
        ([FLAW, UNKNOWN], ("a 1: found CVE-1, expected 1.1",), "the database knows 1 of 2 packages, not c"),
        ([], (), "the database knows 0 of 0 packages, not any"),
    ],
)
def test_packages_that_a_database_does_not_know_are_not_sound(
    packages: Sequence[Mapping[str, Any]], findings, unchecked
):
    """pip-audit itself prints `No known vulnerabilities found` and exits with 0 for them."""
    assert audit.vulnerability_outcome(packages) == audit.Outcome(findings, unchecked)


def test_a_database_that_cannot_be_reached_is_named(tmp_path, monkeypatch):
    """An address of this machine at which nothing answers."""
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    lock = tmp_path / "lock.txt"
    lock.write_text(f"a==1 --hash=sha256:{'0' * 64}\n")
    outcome = audit.vulnerabilities(read_lock(lock))
    assert outcome.findings == ()
    assert outcome.unchecked.startswith("pip-audit reached no database: ")


def test_the_image_has_the_packages_of_its_own_python():
    """Of the packages with a version for older ones it has the other, whichever Python the audit runs with."""
    packages = {each.name: each.version for each in image_packages(ROOT)}
    versions = [each.version for each in read_lock(path_of(ROOT, "image")) if each.name == "numpy"]
    assert packages["numpy"] == max(versions, key=lambda text: [int(part) for part in str(text).split(".")])
    assert "typing-extensions" not in packages


@pytest.fixture
def no_imports(monkeypatch) -> None:
    """Every module is parsed for them, and an index is asked for wheels."""
    monkeypatch.setattr(audit, "import_findings", lambda _: [])
    monkeypatch.setattr(audit, "wheels", lambda _: audit.Outcome())


def test_a_package_without_a_wheel_for_a_platform_of_the_image_is_found(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index is a folder with a wheel for one of them."""
    wheel = tmp_path / "one-1.0-py3-none-manylinux_2_17_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("one-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: one\nVersion: 1.0\n")
        archive.writestr("one-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n")
        archive.writestr("one-1.0.dist-info/RECORD", "")
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    shutil.copyfile(ROOT / "Dockerfile", root / "Dockerfile")
    path_of(root, "image").write_text(f"one==1.0 --hash=sha256:{digest}\n")
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    expected = "one==1.0: found no wheel for aarch64, expected one: the image compiles nothing"
    assert audit.wheels(root) == audit.Outcome((expected,))


@pytest.mark.usefixtures("no_imports")
@pytest.mark.parametrize(("is_strict", "code"), [(False, 0), (True, 1)])
def test_a_check_that_cannot_be_made_fails_only_a_strict_audit(monkeypatch, capsys, is_strict, code):
    monkeypatch.setattr(audit, "licence_findings", lambda *_: ())
    monkeypatch.setattr(audit, "vulnerabilities", lambda *_: audit.Outcome(unchecked="no database"))
    assert audit.audit(ROOT, is_strict=is_strict) == code
    said = capsys.readouterr().out
    assert "vulnerabilities: NOT CHECKED: no database\n" in said
    assert "0 findings, 1 checks not made" in said


@pytest.mark.usefixtures("no_imports")
def test_a_finding_fails_the_audit(monkeypatch, capsys):
    monkeypatch.setattr(audit, "licence_findings", lambda *_: ("x: found GPL, expected MIT",))
    monkeypatch.setattr(audit, "vulnerabilities", lambda *_: audit.Outcome())
    assert audit.audit(ROOT, is_strict=False) == 1
    assert "licences: x: found GPL, expected MIT\n" in capsys.readouterr().out
