"""The dashboard, the alerts and the scrape configuration name what runs export."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from deploying import DEPLOY
from documented import ROOT

from streamomd.runs.run_metrics import OF_LEARNERS, OF_RUN

FOLDER = DEPLOY / "monitoring"
EXPORTED = {f"streamomd_{name}": one for name, one in {**OF_LEARNERS, **OF_RUN}.items()}
FUNCTIONS = {"rate", "increase", "max", "sum", "by", "on", "and", "label_values"}
DASHBOARD = json.loads((FOLDER / "grafana.json").read_text("utf-8"))


def rules() -> list[dict[str, Any]]:
    """Every alert."""
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))["groups"]
    return group["rules"]


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression with where it is."""
    for panel in DASHBOARD["panels"]:
        for target in panel["targets"]:
            yield f"panel {panel['title']}", target["expr"]
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            yield f"variable {variable['name']}", variable["query"]["query"]
    for rule in rules():
        yield f"alert {rule['alert']}", rule["expr"]


@pytest.mark.parametrize("where, expression", [*expressions()])
def test_expressions_name_exported_metrics(where: str, expression: str) -> None:
    """Each is one of them, with labels that it has; counters are in a rate or an increase."""
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]", "", expression)
    words = set(re.findall(r"[a-z_]+", bare))
    metrics = {word for word in words if word.startswith("streamomd_")}
    labels = {label for name in metrics for label in EXPORTED[name].labels} | {"instance"}
    assert metrics
    assert metrics <= set(EXPORTED), where
    assert words - metrics - FUNCTIONS <= labels, where
    counters = {name for name in metrics if EXPORTED[name].kind == "counter"}
    found = re.findall(r"(?:rate|increase)\((\w+)", re.sub(r"\{[^}]*\}", "", expression))
    assert counters == set(found), where


def test_every_metric_is_on_the_dashboard() -> None:
    """No metric is exported that the dashboard lacks."""
    shown = {name for _, text in expressions() for name in re.findall(r"streamomd_\w+", text)}
    assert shown == set(EXPORTED)


def test_panels_are_apart_and_have_a_title() -> None:
    """No two share an id, a title or a place; each has the chosen data source."""
    panels = DASHBOARD["panels"]
    places = [(one["gridPos"]["x"], one["gridPos"]["y"]) for one in panels]
    for found in (places, [one["id"] for one in panels], [one["title"] for one in panels]):
        assert len(found) == len(set(found))
    assert {one["datasource"]["uid"] for one in panels} == {"${datasource}"}


def test_the_scrape_configuration_names_files_that_are_there() -> None:
    """The rules, and the port of the page."""
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text("utf-8"))
    assert [(FOLDER / name).is_file() for name in config["rule_files"]] == [True]
    runs = config["scrape_configs"][0]["static_configs"][0]["targets"]
    page = (ROOT / "docs" / "monitoring.md").read_text("utf-8")
    assert runs == ["127.0.0.1:9100"]
    assert "http://127.0.0.1:9100/metrics" in page


def test_prefixes_of_tasks_are_documented() -> None:
    """The page has every prefix of a task that the source sends, and no other."""
    page = (ROOT / "docs" / "monitoring.md").read_text("utf-8")
    listed = set(re.findall(r"`(omd-\w+)`", page.split("## Tasks on the Dask dashboard")[1]))
    sent: set[str] = set()
    for file in (ROOT / "streamomd" / "distributed").rglob("*.py"):
        sent |= set(re.findall(r'"(omd-[a-z]+)[-"]', file.read_text("utf-8")))
    assert listed == sent
