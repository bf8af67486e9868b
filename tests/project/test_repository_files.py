"""Files for people who find the repository: workflows, forms of issues, how to cite it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"


def schema_accepts(schema: str, *files: Path) -> None:
    """check-jsonschema ships the schemas, so nothing is fetched."""
    words = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema]
    done = subprocess.run([*words, *map(str, files)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_are_legal() -> None:
    files = sorted((GITHUB / "workflows").glob("*.yml"))
    assert files
    schema_accepts("vendor.github-workflows", *files)


def test_the_workflow_runs_the_checks_and_installs_the_wheel() -> None:
    """On each Python that the package supports."""
    jobs = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text())["jobs"]
    assert {"run": ".ci/run"} in jobs["checks"]["steps"]
    assert any("--cov-fail-under=" in step.get("run", "") for step in jobs["coverage"]["steps"])
    runs = [step.get("run", "") for step in jobs["wheel"]["steps"]]
    assert any("streamomd demo" in one for one in runs)
    lowest = jobs["wheel"]["strategy"]["matrix"]["python"][0]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={lowest}"


@pytest.mark.parametrize("name", ["bug", "idea"])
def test_forms_of_issues_ask_for_something(name: str) -> None:
    form = yaml.safe_load((GITHUB / "ISSUE_TEMPLATE" / f"{name}.yml").read_text())
    assert {"name", "description", "body"} <= form.keys()
    kinds = {"textarea", "input"}
    assert all(one["type"] in kinds and one["attributes"]["label"] for one in form["body"])
    assert len({one["id"] for one in form["body"]}) == len(form["body"])


def test_the_citation_names_the_version_and_five_papers() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert cited["version"] == project["version"]
    assert cited["license"] == project["license"]
    assert len(cited["references"]) == 5
    assert all(one["title"] and one["authors"] for one in cited["references"])


def test_an_installation_stays_small() -> None:
    """At most twelve required dependencies; benchmarks/sizes.py measures what they take."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert len(project["dependencies"]) <= 12


def test_the_wheel_has_the_licences_of_what_it_bundles() -> None:
    """Also of the data that `streamomd demo` writes."""
    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for file in whole["project"]["license-files"]:
        assert "icen" in (ROOT / file).read_text("utf-8")
    bundled = whole["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert "pipelines/data" in bundled
    assert "pipelines/data/README.md" in whole["project"]["license-files"]
