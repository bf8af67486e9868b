"""The dashboard, the alerts and the scrape configuration name what runs export."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from deploying import DEPLOY, documents
from documented import ROOT
from http_serving import numbered, served

from streamomd.runs.run_metrics import OF_LEARNERS, OF_RUN

FOLDER = DEPLOY / "monitoring"
EXPORTED = {f"streamomd_{name}": one for name, one in {**OF_LEARNERS, **OF_RUN}.items()}
SERVED = {f"streamomd_{name}" for name in ("ready", "commit", "commit_refused")}
OTHERS = {"up": {"job"}, "kube_cronjob_status_last_successful_time": {"cronjob"}}
"""Metrics of Prometheus itself and of kube-state-metrics, with the labels that are used."""
FUNCTIONS = {
    "rate", "increase", "max", "sum", "by", "on", "and", "label_values", "absent", "time", "or",
}  # fmt: skip
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
    metrics = {word for word in words if word.startswith("streamomd_")} - SERVED
    others = (words & {*OTHERS}) | (words & SERVED)
    labels = {label for name in metrics for label in EXPORTED[name].labels} | {"instance"}
    assert metrics or others
    assert {*re.findall(r"(\w+)=", expression)} <= {"job", "cronjob", *labels}, where
    assert metrics <= set(EXPORTED), where
    assert words - metrics - others - FUNCTIONS <= labels, where
    counters = {name for name in metrics if EXPORTED[name].kind == "counter"}
    found = re.findall(r"(?:rate|increase)\((\w+)", re.sub(r"\{[^}]*\}", "", expression))
    assert counters == set(found), where


def test_every_metric_is_on_the_dashboard() -> None:
    """No metric is exported that the dashboard lacks."""
    shown = {name for _, text in expressions() for name in re.findall(r"streamomd_\w+", text)}
    assert shown - SERVED == set(EXPORTED)


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
    page = (ROOT / "docs" / "prometheus.md").read_text("utf-8")
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


def test_alerts_have_a_severity_and_notice_silence() -> None:
    """Each is critical or a warning. Of each job that runs all the time the absence is one, and so
    is a CronJob whose last success is long ago; the names are those of what is deployed."""
    alerts = {one["alert"]: one for one in rules()}
    assert {one["labels"]["severity"] for one in alerts.values()} == {"critical", "warning"}
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text("utf-8"))
    jobs = {one["job_name"] for one in config["scrape_configs"]}
    absent = {
        name
        for one in alerts.values()
        for name in re.findall(r'^absent\(up\{job="([\w-]+)"\} == 1\)$', one["expr"])
    }
    assert absent == jobs - {"streamomd"} == {"streamomd-follow", "streamomd-serve"}
    (cron,) = (one for one in documents(DEPLOY / "kubernetes" / "update.yaml"))
    name = cron["metadata"]["name"]
    late = alerts["StreamomdUpdateDidNotRun"]["expr"]
    assert late.startswith("time() - kube_cronjob_status_last_successful_time{")
    assert f'cronjob="{name}"' in late
    assert f'cronjob="{name}"' in alerts["StreamomdUpdateIsMissing"]["expr"]
    assert cron["spec"]["schedule"].endswith(" * * *")
    assert int(late.rpartition(">")[2]) > 24 * 3600
    assert "streamomd_commit_refused >= 0" in [one["expr"] for one in alerts.values()]


def test_metrics_of_a_server_that_alerts_name_are_exported() -> None:
    """By a server that has no model yet."""
    with served(numbered(1), load=False) as server:
        text = server.get("/metrics").body.decode()
    assert {line.split()[0] for line in text.splitlines()} >= SERVED
