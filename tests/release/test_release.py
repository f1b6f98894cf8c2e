"""A release from a commit: its files, what they name, and input of which no release is made."""

import hashlib
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.release import artifacts
from tests.release.__main__ import main
from tests.release.changelog import close_unreleased, notes, sections
from tests.release.checkout import ROOT, ReleaseError, commit_time_s
from tests.release.locks import FOLDER, NAMES, path_of, read_lock
from tests.release.versions import FILES, chart_version, project_version, require_version, set_version

DIGEST = f"sha256:{'a1' * 32}"
NEW = "7.8.9"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of git with the files that a release is made of, but for the program's."""
    return _checkout(tmp_path / "checkout")


def _checkout(root: Path) -> Path:
    for name in (*FILES, "CHANGELOG.md", ".gitignore"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, root / name)
    for name in ("manifests", FOLDER):
        shutil.copytree(ROOT / name, root / name, dirs_exist_ok=True)
    changelog = root / "CHANGELOG.md"
    # Directly after a release there are no changes.
    changelog.write_text(
        changelog.read_text().replace("## Unreleased\n", "## Unreleased\n\n- A change.\n", 1)
    )
    git(root, "init", "--quiet")
    commit(root)
    return root


def git(root: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    subprocess.run(["git", "-C", str(root), *identity, *arguments], check=True)


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "c")


@pytest.fixture
def released(checkout: Path) -> Path:
    """The checkout after `make version`, committed."""
    assert main(["--root", str(checkout), "version", NEW]) == 0
    commit(checkout)
    return checkout


@pytest.fixture(scope="module", autouse=True)
def no_distributions() -> Iterator[None]:
    """Distributions are built in test_wheel.py."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(artifacts, "build_distributions", lambda *_: None)
        yield


@pytest.fixture
def no_bills(monkeypatch) -> None:
    """Bills of materials take seconds; `complete` has them."""
    monkeypatch.setattr(artifacts, "bill_of_materials", lambda *_: b"")


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a release with everything, of an image with a digest."""
    root = _checkout(tmp_path_factory.mktemp("complete") / "checkout")
    assert main(["--root", str(root), "version", NEW]) == 0
    commit(root)
    assert build(root, "--image", "ghcr.io/example/scheduler", "--image-digest", DIGEST) == 0
    return root / "dist" / NEW


def build(root: Path, *arguments: str) -> int:
    return main(["--root", str(root), "build", NEW, *arguments])


def contents(path: Path) -> dict[str, str]:
    with tarfile.open(path) as archive:
        files = {entry.name: archive.extractfile(entry) for entry in archive.getmembers()}
        return {
            name: file.read().decode() for name, file in files.items() if file and not name.endswith(".png")
        }


def test_a_release_has_everything_with_its_checksum(complete):
    sums = dict(reversed(line.split("  ")) for line in (complete / "SHA256SUMS").read_text().splitlines())
    assert sums == {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in complete.iterdir()
        if path.name != "SHA256SUMS"
    }
    name = f"affinity-scheduler-{NEW}"
    assert sums.keys() == {
        "RELEASE_NOTES.md",
        f"affinity-scheduler-chart-{NEW}.tgz",
        f"affinity-scheduler-manifests-{NEW}.tgz",
        *(f"{name}.{lock}.lock.txt" for lock in NAMES),
        *(f"{name}.{of}.cdx.json" for of in ("image", "wheel")),
    }


@pytest.mark.usefixtures("no_bills")
def test_two_releases_of_a_commit_are_equal(released, tmp_path):
    subprocess.run(["git", "clone", "--quiet", str(released), str(tmp_path / "elsewhere")], check=True)
    sums = []
    for root in (released, tmp_path / "elsewhere"):
        assert build(root) == 0
        sums.append((root / "dist" / NEW / "SHA256SUMS").read_text())
    assert sums[0] == sums[1]


def test_chart_and_manifests_name_the_image_by_its_digest(complete):
    chart = contents(complete / f"affinity-scheduler-chart-{NEW}.tgz")
    assert '  repository: "ghcr.io/example/scheduler"\n' in chart["affinity-scheduler/values.yaml"]
    assert f'  digest: "{DIGEST}"\n' in chart["affinity-scheduler/values.yaml"]
    manifests = contents(complete / f"affinity-scheduler-manifests-{NEW}.tgz")
    deployments = {name: text for name, text in manifests.items() if name.endswith("/deployment.yaml")}
    assert len(deployments) == 3
    assert all(f"image: ghcr.io/example/scheduler@{DIGEST}\n" in text for text in deployments.values())


@pytest.mark.usefixtures("no_bills")
def test_without_a_digest_a_line_says_what_is_named_instead(released, capsys):
    assert build(released) == 0
    assert (
        capsys.readouterr()
        .out.splitlines()[-1]
        .startswith(f"no IMAGE_DIGEST: chart and manifests name affinity-scheduler:{NEW}, by a tag")
    )


@pytest.mark.usefixtures("no_bills")
def test_the_chart_has_a_version_of_its_own(checkout):
    assert main(["--root", str(checkout), "version", NEW, "--chart-version", "3.0.0"]) == 0
    assert (chart_version(checkout), project_version(checkout)) == ("3.0.0", NEW)
    commit(checkout)
    assert build(checkout) == 0
    chart = contents(checkout / "dist" / NEW / "affinity-scheduler-chart-3.0.0.tgz")[
        "affinity-scheduler/Chart.yaml"
    ]
    assert "\nversion: 3.0.0\n" in chart
    assert f"\nappVersion: {NEW}\n" in chart


def test_the_packed_chart_renders_with_the_digest(complete, tmp_path):
    helm = pytest.importorskip(
        "helm_python", reason="helm-python-sdk is not installed: no wheel for this platform"
    )
    with tarfile.open(complete / f"affinity-scheduler-chart-{NEW}.tgz") as archive:
        archive.extractall(tmp_path / "chart", filter="data")
    with helm.Chart.load(tmp_path / "chart" / "affinity-scheduler") as chart:
        files = chart.render({}, name="a", namespace="kube-system")
    assert f'image: "ghcr.io/example/scheduler@{DIGEST}"' in "".join(files.values())


@pytest.mark.parametrize("of", ["image", "wheel"])
def test_a_bill_of_materials_is_valid_and_has_the_locked_packages(complete, of):
    text = (complete / f"affinity-scheduler-{NEW}.{of}.cdx.json").read_text()
    # Here, for a second and 19 MB of every process that collects this file.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    # Two bills of a lock are equal.
    assert "serialNumber" not in bill
    made_s = datetime.fromisoformat(bill["metadata"]["timestamp"]).timestamp()
    assert made_s == commit_time_s(complete.parents[1])
    locked = {each.name: each for each in read_lock(path_of(ROOT, of))}
    listed = {each["name"]: each for each in bill["components"]}
    assert listed.keys() == locked.keys() - ({"typing-extensions"} if of == "image" else set())
    assert [each["version"] for each in bill["components"] if each["name"] == "numpy"]
    assert ("cryptography" in listed) is (of == "image")
    graph = {each["ref"]: each.get("dependsOn", []) for each in bill["dependencies"]}
    assert listed["yarl"]["bom-ref"] in graph[listed["aiohttp"]["bom-ref"]]
    assert listed["aiohttp"]["bom-ref"] in graph["root-component"]
    assert listed["frozenlist"]["bom-ref"] not in graph["root-component"]
    root = bill["metadata"]["component"]
    assert (root["type"], root["version"]) == (("container", DIGEST) if of == "image" else ("library", NEW))


def test_notes_are_the_section_of_the_changelog(complete):
    root = complete.parents[1]
    command = ["git", "-C", str(root), "show", "HEAD~1:CHANGELOG.md"]
    before = sections(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    text = (complete / "RELEASE_NOTES.md").read_text()
    built = f"Built and run by `make image-check`: ghcr.io/example/scheduler@{DIGEST}\n"
    assert text == f"# affinity-scheduler {NEW}\n\n{before['Unreleased']}\n\n{built}"
    after = sections((root / "CHANGELOG.md").read_text())
    assert after == {**before, "Unreleased": "", NEW: before["Unreleased"]}


def test_every_file_that_repeats_the_version_is_known(checkout):
    """No other file of the manifests and of the top level names the image with a version."""
    set_version(checkout, NEW, NEW)
    require_version(checkout, NEW)
    old = project_version(ROOT)
    left = [
        str(path.relative_to(ROOT))
        for path in (*ROOT.glob("*"), *(ROOT / "manifests").rglob("*"))
        if path.suffix in {".md", ".yaml", ".toml", ".tpl", ".json", ""} and path.is_file()
        if f"affinity-scheduler:{old}" in path.read_text() and str(path.relative_to(ROOT)) not in FILES
    ]
    assert left == []


def test_a_file_of_another_version_is_named(checkout):
    old = project_version(checkout)
    texts = {name: (checkout / name).read_text() for name in FILES}
    set_version(checkout, NEW, NEW)
    for name, text in texts.items():
        (checkout / name).write_text(text)
        of_truth = f"found {NEW}, expected {old}"
        found = of_truth if name == "pyproject.toml" else f"{name}: found version {old}, expected {NEW}"
        with pytest.raises(ReleaseError, match=re.escape(found)):
            require_version(checkout, NEW)
        (checkout / name).write_text(text.replace(old, NEW))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["1.0"], "VERSION: found 1.0, expected MAJOR.MINOR.PATCH, such as 1.0.0"),
        ([""], "VERSION: found nothing, expected MAJOR.MINOR.PATCH, such as 1.0.0"),
        (["v1.0.0"], "VERSION: found v1.0.0, expected MAJOR.MINOR.PATCH, such as 1.0.0"),
        (["1.0.0", "--image-digest", "sha256:12"], "IMAGE_DIGEST: found sha256:12, expected sha256: and 64"),
        (["1.0.0", "--image", "a/b:1"], "IMAGE: found a/b:1, expected a repository without tag"),
        (["9.9.9"], "VERSION: found 9.9.9, expected "),
    ],
)
def test_bad_input_is_one_line_and_exits_2(checkout, capsys, arguments, says):
    assert main(["--root", str(checkout), "build", *arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    assert said.err.startswith(says)
    assert not (checkout / "dist").exists()


def test_a_checkout_that_is_not_clean_is_refused(released, capsys):
    (released / "stray.py").write_text("")
    assert build(released) == 2
    assert "found 1 files that differ from the commit (stray.py)" in capsys.readouterr().err


def test_a_folder_without_git_is_refused(tmp_path, capsys):
    assert build(tmp_path) == 2
    assert "expected a checkout of git" in capsys.readouterr().err


def test_a_lock_that_is_not_there_is_named(released, capsys):
    git(released, "rm", "--quiet", f"{FOLDER}/image.txt")
    commit(released)
    assert build(released) == 2
    assert capsys.readouterr().err.endswith(
        "image.txt: found No such file or directory, expected a file of the checkout\n"
    )


def test_changes_of_no_version_are_refused(checkout, capsys):
    set_version(checkout, NEW, NEW)
    commit(checkout)
    assert build(checkout) == 2
    assert "found changes under Unreleased, expected none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# C\n\n## Unreleased\n\n## 1.0.0\n\n- a\n", "found no changes under Unreleased"),
        (f"# C\n\n## Unreleased\n\n- a\n\n## {NEW}\n\n- a\n", f"found a section {NEW} already"),
    ],
)
def test_a_section_is_closed_once_and_with_changes(text, says):
    with pytest.raises(ReleaseError, match=says):
        close_unreleased(text, NEW)


def test_a_version_without_notes_is_refused():
    with pytest.raises(ReleaseError, match=r"found no section 2\.0\.0"):
        notes("# C\n\n## Unreleased\n\n## 1.0.0\n\n- a\n", "2.0.0")
