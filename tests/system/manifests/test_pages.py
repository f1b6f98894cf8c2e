"""The README pages are correct: links, folders, annotations, flags and metrics exist."""

import json
import re
from pathlib import Path

import pytest
import yaml

from scheduler.cli import main
from scheduler.engine.model.annotations import AFFINITY, DeclaredAffinity, parse_affinity_annotation
from scheduler.tools.webhook.term_json import ParsedTerms, parse_terms
from scheduler.tools.webhook.term_lists import TERM_LISTS
from tests.support.manifest_files import MANIFESTS, ROOT
from tests.support.surface import families, flags

COMMANDS = ROOT / "scheduler" / "cli" / "README.md"
TOOLS = sorted((ROOT / "scheduler" / "tools").glob("*/README.md"))
PAGES = sorted([
    *(ROOT / name / "README.md" for name in ("manifests", "scheduler", "scheduler/sdk/plugin", "tests", "tests/bench")),
    COMMANDS,
    *TOOLS,
    *MANIFESTS.glob("*/*.md"),
    *ROOT.glob("*.md"),
])  # fmt: skip
_IDS = [str(page.relative_to(ROOT)) for page in PAGES]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=_IDS)
def test_every_link_has_a_target(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=_IDS)
def test_every_link_into_a_page_names_a_heading(page: Path) -> None:
    """GitHub makes a heading's anchor of its words in lower case, without punctuation."""
    missing = []
    for target, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text()):
        text = (page.parent / target if target else page).read_text()
        headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
        if anchor not in {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}:
            missing.append(f"{target}#{anchor}")
    assert missing == []


@pytest.mark.parametrize(
    "page",
    [
        COMMANDS,
        *TOOLS,
        ROOT / "manifests" / "README.md",
        ROOT / "tests" / "README.md",
        MANIFESTS / "examples" / "groups.md",
    ],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_page_about_one_thing_has_less_than_200_lines(page: Path) -> None:
    assert len(page.read_text().splitlines()) < 200


def test_an_entry_of_the_changelog_is_one_line() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    entries = re.findall(r"^- .*(?:\n +\S.*)*", text, re.MULTILINE)
    assert [entry for entry in entries if "\n" in entry or len(entry) > 160] == []


def test_every_page_is_linked_from_the_readme() -> None:
    text = (ROOT / "README.md").read_text()
    for page in PAGES:
        assert page == ROOT / "README.md" or f"({page.relative_to(ROOT)})" in text


@pytest.mark.parametrize("page", PAGES, ids=_IDS)
def test_every_folder_in_a_command_exists(page: Path) -> None:
    named = re.findall(r"apply -[kf] (manifests/[\w./-]*)", page.read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=_IDS)
def test_every_annotation_can_be_parsed(page: Path) -> None:
    shapes = {term_list.annotation: term_list.term_type for term_list in TERM_LISTS}
    for block in blocks(page, "yaml"):
        content = yaml.safe_load(block)
        assert content is not None
        if isinstance(content, list):  # of another program's configuration
            continue
        meta = content.get("metadata", content)
        for name, text in (meta.get("annotations") or {}).items():
            if name == AFFINITY:
                assert isinstance(parse_affinity_annotation("default", {}, {name: text}), DeclaredAffinity), (
                    text
                )
            elif name in shapes:
                found = parse_terms(text, shapes[name])
                assert isinstance(found, ParsedTerms), text
                assert found.unknown == ()
            else:
                json.loads(text)


#: Of kubectl, Helm, image builders and autoscalers, and of the project's own tools; arrows of a drawing; a rule for
#: Deployments of the example, in prose; a prefix; what a type checker is asked for.
_OF_OTHERS = """
    --field-selector --ignore-not-found --clusterrole --serviceaccount --set --set-file --build-arg
    --format --platform --provenance --push --sbom --sign --tag --target --allowed-scheduler-names
    --bypassed-scheduler-names --new-pod-scale-up-delay --scheduler-config-file --level --other-checkout
    --placed --strict --upgrade --volumes --check --holds --hostile --pods --rounds --scheduler-binary
    --shape --start --as-whole --hypothesis-seed --lives --snapshot-update
    --accepted-- --decided-- --put --ready-- --seen
    --exchange --leader-elect- --types
"""


# The changelog names flags that ended.
@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=_IDS[1:])
def test_every_flag_exists(page: Path) -> None:
    known = {"--help", *_OF_OTHERS.split()}.union(*flags().values())
    code = " ".join(re.findall(r"`[^`]+`|^```.*?^```", page.read_text(), re.MULTILINE | re.DOTALL))
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", code)) - known == set()


def test_the_page_about_commands_has_all_of_them() -> None:
    text = COMMANDS.read_text()
    assert [name for name in main._COMMANDS if f"| `{name}" not in text and f", `{name} " not in text] == []


def test_every_metric_exists() -> None:
    known = families().keys()
    for page in PAGES:
        named = set(re.findall(r"affinity_scheduler_\w+", page.read_text()))
        assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in named} - known == set(), page
