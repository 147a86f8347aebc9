"""The form of README and docs: short lines, links that lead somewhere, pages that the site's navigation has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import docs_site

ROOT = Path(__file__).parent.parent.parent
TOP = [ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "AGENTS")]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
LONGEST = 120
COMMANDS_BY_LINE = {"docs/papers.md"}  # test_papers.py reads each command of its blocks as one line


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [*TOP, *DOCS], ids=name)
def test_lines_are_short(page: Path) -> None:
    """Tables aside: a row is a line."""
    text = page.read_text(encoding="utf-8")
    if name(page) in COMMANDS_BY_LINE:
        text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    long = [line for line in text.splitlines() if len(line) > LONGEST and not line.startswith("|")]
    assert not long, long[0]


@pytest.mark.parametrize("page", [*TOP, *DOCS], ids=name)
def test_relative_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        path = target.partition("#")[0]
        if path and "://" not in target:
            assert (page.parent / path).exists(), target


def test_the_design_names_what_exists() -> None:
    """Files, folders, functions and attributes, except those of libraries that were not adopted."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8").partition("## Libraries tried")[0]
    folders = ("src", "tests", "tools", "replication", "benchmarks")
    modules = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    files = {path.name for path in modules}
    words = {word for path in modules for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    unknown = set()
    for quoted in re.findall(r"`([^`\n]+)`", text):
        if re.fullmatch(r"[\w/.-]+(/|\.py|\.md|\.txt)", quoted) and "NAME" not in quoted:
            places = (ROOT / quoted, ROOT / "src" / "tellapart" / quoted)
            unknown |= set() if quoted in files or any(place.exists() for place in places) else {quoted}
        elif call := re.match(r"@?[\w.]*\b([A-Za-z_]\w*)(\(|$)", quoted):
            unknown |= {call[1]} - words
    assert not unknown


def test_the_navigation_has_every_page() -> None:
    """Also the pages that tools/docs_site.py writes, and no others; those of the code it adds itself."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    listed = set(re.findall(r"(?:- |: )([\w/.-]+\.md)(?:  #.*)?$", navigation, re.MULTILINE))
    made = {uri for uri, _ in docs_site.repository_pages()} | {"api/index.md"}
    assert {str(page.relative_to(ROOT / "docs")) for page in DOCS} | made == listed


def test_the_picture_of_the_readme_is_small() -> None:
    pictures = re.findall(r"\]\((docs/images/[^)]+)\)", TOP[0].read_text(encoding="utf-8"))
    assert pictures and all((ROOT / picture).stat().st_size < 200_000 for picture in pictures)


# Sizes that a reader can take in; generated reference pages are not counted.
USER_PAGES = [page for page in DOCS if page.parent.name != "research"]
GENERATED = {"docs/reference/metrics.md"}
FOR_CONTRIBUTORS = {"docs/design.md"}
ALLOWED_LINES = {"README.md": 110, "CHANGELOG.md": 80}


def test_user_pages_stay_short() -> None:
    sizes = {name(page): len(page.read_text(encoding="utf-8").splitlines()) for page in (*TOP, *USER_PAGES)}
    allowed = {page: ALLOWED_LINES.get(page, 100 if page.startswith("docs/howto/") else 250) for page in sizes}
    assert not {page: lines for page, lines in sizes.items() if lines > allowed[page] and page not in GENERATED}
    assert sum(page.stat().st_size for page in USER_PAGES if name(page) not in GENERATED | FOR_CONTRIBUTORS) < 250_000
