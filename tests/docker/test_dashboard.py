"""The Grafana dashboard asks for metrics and labels that docs/metrics.md has, which are those of the services."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.docker.command_lines import DOCKER

ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*?) ?\| [\w, ]+ \| ", re.MULTILINE)
METRIC = re.compile(r"\b(?:slipstream|process)_\w+")
LABELS = re.compile(r"\bby \(([\w, ]+)\)|(\w+)=~?\"")
OF_PROMETHEUS = {"job", "instance", "le"}

DASHBOARD: dict[str, Any] = json.loads((DOCKER / "grafana" / "dashboards" / "slipstream.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
DOCUMENTED = ROW.findall((DOCKER.parent / "docs" / "metrics.md").read_text())


def exported() -> set[str]:
    """Names as Prometheus stores them."""
    parts = {"histogram": ("_bucket", "_sum", "_count")}
    return {name + part for name, kind, _ in DOCUMENTED for part in parts.get(kind, ("",))}


def test_every_metric_of_the_dashboard_is_one_of_the_services() -> None:
    queries = [variable["query"]["query"] for variable in DASHBOARD["templating"]["list"]]
    named = {name for text in (*EXPRESSIONS, *queries) for name in METRIC.findall(text)}
    assert len(named) > 25
    assert named - exported() == set()


def test_every_label_of_the_dashboard_is_one_of_the_services() -> None:
    known = {label for _, _, labels in DOCUMENTED for label in labels.split(", ")} | OF_PROMETHEUS
    found = [grouped or compared for text in EXPRESSIONS for grouped, compared in LABELS.findall(text)]
    assert {label for labels in found for label in labels.split(", ")} - known == set()


def test_panels_have_places_of_their_own() -> None:
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
