"""What README and docs name exists: files, links, and the names that tell a newcomer where to add things."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("slipstream", "drafter_svc", "verifier_svc", "gateway", "launcher")
PAGES = (ROOT / "README.md", ROOT / "bench" / "README.md", *sorted((ROOT / "docs").glob("*.md")))
PLACEHOLDER = re.compile(r"[<>*$ :=]|\bx\.py|test_x")


def spans(page: Path) -> list[str]:
    prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    return re.findall(r"`([^`\n]+)`", prose)


def sources() -> str:
    files = (
        path
        for folder in (*PACKAGES, "tests", "proto")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".proto"}
    )
    return "\n".join(path.read_text() for path in files)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_path_in_the_repository_that_a_page_names_exists(page: Path) -> None:
    tops = {path.name for path in ROOT.iterdir()}
    paths = [s for s in spans(page) if "/" in s and s.split("/")[0] in tops and not PLACEHOLDER.search(s)]
    assert [path for path in paths if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text())
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (page.parent / link).exists()] == []


def test_the_architecture_page_has_every_package() -> None:
    rows = [line for line in (ROOT / "docs" / "architecture.md").read_text().splitlines() if line.startswith("| `")]
    named = {Path(path).name for row in rows for path in re.findall(r"`([^`]+/)`", row)}
    packages = {file.parent.name for top in PACKAGES for file in (ROOT / top).rglob("__init__.py")}
    assert packages - named - {"slipstream", "v1", "gpu", "draft_step"} == set()


def test_the_page_of_measurements_names_every_program_and_part() -> None:
    page = (ROOT / "bench" / "README.md").read_text()
    files = {path.stem for path in (ROOT / "bench").glob("*.py")}
    assert sorted(stem for stem in files if not re.search(rf"`{stem}(\.py)?`|/{stem}\.py`", page)) == []


def test_every_name_that_a_newcomer_is_told_is_in_the_code() -> None:
    code = sources()
    names = [name for name in spans(ROOT / "docs" / "extending.md") if re.fullmatch(r"[A-Za-z_]{4,}", name)]
    assert len(names) > 10
    assert [name for name in names if not re.search(rf"\b{name}\b", code)] == []
