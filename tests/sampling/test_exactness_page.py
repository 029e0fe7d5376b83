"""Every test that docs/exactness.md names exists where it says."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHORT = {"E": "test_exactness", "V": "test_verification", "L": "test_speculative_loop"}
CITED = re.compile(r"(?:\b([EVL])|`(tests/\S+\.py)`) `(test_\w+)`")


def test_every_test_that_the_page_cites_exists() -> None:
    cited = CITED.findall((ROOT / "docs" / "exactness.md").read_text())
    assert len(cited) >= 25
    for short, path, name in cited:
        source = ROOT / (path or f"tests/sampling/{SHORT[short]}.py")
        assert re.search(rf"def {name}\(", source.read_text()), f"docs/exactness.md names {name}; {source} has none"
