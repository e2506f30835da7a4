"""What stands in deploy/: whole, and of the metrics and flags that there are."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cli import make_parser
from penstock.dashboard.sampling import write_metrics
from tests.dashboard.made_up import made_up_graph, made_up_sample

DEPLOY = Path(__file__).parents[2] / "deploy"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
OPERATORS = r"\b(?:and|or|unless|by|without|sum|max|min|avg|rate|increase|deriv|predict_linear|absent_over_time)\b"


def emitted() -> dict[str, set[str]]:
    """Return the metrics of a run that has everything, each with its labels."""
    text = write_metrics(made_up_sample(made_up_graph(3, 4), shards=16, tasks=2))
    found: dict[str, set[str]] = {}
    for name, labels in re.findall(r"^(penstock_\w+)\{(.*)\} ", text, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DEPLOY / "grafana" / "penstock.json").read_text())["panels"]
    return found


def check_expression(expression: str) -> None:
    """Refuse what names a metric or a label that no run has, or has a bracket too few."""
    known = emitted()
    for left, right in ("()", "[]", "{}"):
        assert expression.count(left) == expression.count(right), expression
    names = re.findall(r"\bpenstock_\w+", expression)
    assert names, expression
    for name in names:
        assert name in known, f"{name} is no metric; there are {sorted(known)}"
    for name, labels in re.findall(r"(penstock_\w+)\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)\s*[=!]", labels)) <= known[name], expression
    words = set(re.findall(r"[a-z_]{3,}", re.sub(r'"[^"]*"|\{[^}]*\}|\([a-z, ]+\)', "", expression)))
    assert {word for word in words if not word.startswith("penstock_")} <= set(re.findall(OPERATORS, expression))


def test_every_metric_is_made_by_the_sample():
    written = set(re.findall(r'add\(\s*"(\w+)"', Path(write_metrics.__code__.co_filename).read_text()))
    assert {f"penstock_{name}" for name in written} == set(emitted())


def test_alerts_are_of_metrics_that_there_are():
    rules = alerts()
    assert len({rule["alert"] for rule in rules}) == len(rules) > 5
    known = {label for labels in emitted().values() for label in labels}
    for rule in rules:
        check_expression(rule["expr"])
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary", "description"}
        assert set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"]))) <= known
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))


def test_the_dashboard_shows_metrics_that_there_are():
    shown = panels()
    assert len({panel["id"] for panel in shown}) == len(shown) > 10
    cells = [
        (x, y)
        for p in shown
        for g in (p["gridPos"],)
        for x in range(g["x"], g["x"] + g["w"])
        for y in range(g["y"], g["y"] + g["h"])
    ]
    assert len(cells) == len(set(cells)), "two panels lie on each other"
    assert max(x for x, _ in cells) < 24
    for panel in shown:
        for target in panel["targets"]:
            check_expression(target["expr"])


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool here")
def test_prometheus_takes_the_rules():
    command = ["promtool", "check", "rules", str(DEPLOY / "prometheus" / "alerts.yml")]
    assert subprocess.run(command, check=False).returncode == 0


def test_the_scrape_job_asks_the_page():
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    assert job["metrics_path"] == "/metrics"
    assert all((DEPLOY / "prometheus" / file).exists() for file in config["rule_files"])


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_manifests_are_whole_and_their_commands_are_taken(path):
    found = documents(path)
    assert all({"apiVersion", "kind", "metadata"} <= set(each) and each["metadata"]["name"] for each in found)
    names = {(each["kind"], each["metadata"]["name"]) for each in found}
    assert len(names) == len(found)
    (deployment,) = [each["spec"] for each in found if each["kind"] == "Deployment"]
    assert (deployment["replicas"], deployment["strategy"]["type"]) == (1, "Recreate")
    pod = deployment["template"]
    assert deployment["selector"]["matchLabels"] == pod["metadata"]["labels"]
    volumes = {each["name"]: each for each in pod["spec"]["volumes"]}
    for volume in volumes.values():
        claim, config = volume.get("persistentVolumeClaim"), volume.get("configMap")
        assert claim is None or ("PersistentVolumeClaim", claim["claimName"]) in names
        assert config is None or ("ConfigMap", config["name"]) in names
    account = pod["spec"].get("serviceAccountName")
    assert account is None or ("ServiceAccount", account) in names
    (container,) = pod["spec"]["containers"]
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    ports = {port["name"] for port in container["ports"]}
    assert {container[probe]["tcpSocket"]["port"] for probe in ("startupProbe", "livenessProbe")} <= ports
    command = [*container["command"], *container["args"]]
    assert command[0] == "penstock"
    assert make_parser().parse_args(command[1:]).target == "/opt/shop.py"
    for service in [each["spec"] for each in found if each["kind"] == "Service"]:
        assert service["selector"] == pod["metadata"]["labels"]
        assert {port["port"] for port in service["ports"]} <= {port["containerPort"] for port in container["ports"]}


def test_there_are_manifests_and_units():
    assert MANIFESTS
    assert UNITS


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_units_start_a_command_that_is_taken(path):
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(path.read_text())
    assert unit.sections() == ["Unit", "Service", "Install"]
    service = unit["Service"]
    program, *arguments = shlex.split(service["ExecStart"].replace("%i", "shop"))
    assert program.endswith("/penstock")
    args = make_parser().parse_args(arguments)
    assert (args.target, args.checkpoint, args.log) == ("flow.py", "/var/lib/penstock/shop", "json")
    assert (service["SuccessExitStatus"], service["RestartPreventExitStatus"]) == ("143", "2")
    if shutil.which("systemd-analyze") is not None:
        done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
        ours = [line for line in done.stderr.splitlines() if "is not executable" not in line and path.name in line]
        assert ours == []
