"""Rules and alerts are valid, tested by promtool, and each alert has a runbook."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from gpumon.core.diagnosis import messages
from gpumon.core.phase import InputWaitReason
from gpumon.outlets.metrics.metric_table import METRICS
from tests.needs import needed
from tests.unit.prometheus.builders_promtool import without_tiles

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "prometheus"
RULES, ALERTS, TESTS = (FOLDER / name for name in ("rules.yml", "alerts.yml", "tests.yml"))
RUNBOOKS = ROOT / "docs" / "runbooks"

ALERT_NAMES = re.findall(r"- alert: (\w+)", ALERTS.read_text(encoding="utf-8"))
BASE = "https://gpumon.example/docs/runbooks"
BASE_OF_RUNBOOKS = '{{ with query "gpumon:runbooks:info" }}{{ . | first | label "base" }}{{ end }}'


def text_of(alert: str) -> str:
    parts = ALERTS.read_text(encoding="utf-8").split("- alert: ")
    return next(part for part in parts if part.startswith(f"{alert}\n"))


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    command = [needed("promtool", "prometheus"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.prometheus
def test_promtool_finds_no_fault() -> None:
    done = promtool("check", "rules", str(RULES), str(ALERTS))

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.prometheus
@pytest.mark.parametrize(
    ("old", "new", "passes"),
    [("> 0.30", "> 0.60", False), (BASE, "https://wiki.example/gpu", True)],
    ids=["not with another threshold", "with another base of runbooks, which is in one line"],
)
def test_the_tests_pass(tmp_path: Path, old: str, new: str, passes: bool) -> None:
    for path in (RULES, ALERTS, TESTS):
        text = without_tiles(path.read_text(encoding="utf-8"))
        (tmp_path / path.name).write_text(text.replace(old, new), encoding="utf-8")

    assert old != BASE or ALERTS.read_text(encoding="utf-8").count(BASE) == 1
    assert (promtool("test", "rules", str(tmp_path / TESTS.name)).returncode == 0) is passes


class TestEachAlert:
    @pytest.mark.parametrize("alert", ALERT_NAMES)
    def test_has_a_runbook(self, alert: str) -> None:
        urls = re.findall(r"runbook_url: '(.+)'", text_of(alert))

        assert "\n        keep_firing_for: 5m\n" in text_of(alert)  # through a failed scrape
        assert urls == [f"{BASE_OF_RUNBOOKS}/{alert}.md"]
        assert (RUNBOOKS / f"{alert}.md").read_text(encoding="utf-8").startswith(f"# {alert}\n")

    @pytest.mark.parametrize("alert", ALERT_NAMES)
    def test_is_documented_with_its_severity(self, alert: str) -> None:
        table = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
        severity = re.findall(r"severity: (\w+)", text_of(alert))

        assert re.findall(rf"\| \[{alert}\]\(runbooks/{alert}.md\) \| (\w+) \|", table) == severity

    @pytest.mark.parametrize("alert", ALERT_NAMES)
    def test_fires_in_a_test(self, alert: str) -> None:
        cases = TESTS.read_text(encoding="utf-8").split("- alertname: ")

        assert any(case.startswith(alert) and "exp_labels" in case for case in cases)


def test_the_advice_of_each_reason_is_that_of_the_report() -> None:
    pattern = r"reason: (\w+)\n +advice: >-\n((?: {12}.+\n)+)"
    advice = {
        reason: " ".join(text.split())
        for reason, text in re.findall(pattern, ALERTS.read_text(encoding="utf-8"))
    }

    assert set(advice) == {reason.value for reason in InputWaitReason}
    assert advice.pop("network_bound").startswith(messages.NETWORK_BOUND.split(".")[0])
    assert advice == {
        "cpu_bound": messages.CPU_BOUND,
        "gil_bound": messages.GIL_BOUND,
        "disk_bound": messages.DISK_BOUND,
        "memory_pressure": messages.MEMORY_PRESSURE,
        "latency_bound": messages.LATENCY_BOUND,
        "unknown": messages.PREFETCH,
    }


def test_every_runbook_has_an_alert() -> None:
    pages = {page.stem for page in RUNBOOKS.glob("*.md")}

    assert pages == set(ALERT_NAMES)


@pytest.mark.parametrize("path", [RULES, ALERTS], ids=lambda path: path.name)
def test_expressions_use_exported_metrics_over_five_scrapes_of_a_minute(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    used = set(re.findall(r"(?<![\w:])gpumon_\w+(?=[{\[\s]|$)", text))
    # rate() needs two samples: with one failed scrape, a range of 2 m has fewer.
    ranges = re.findall(r"(?:rate|increase)\([^\[]+\[(\d+)m\]", text)

    assert used
    assert used - {metric.name for metric in METRICS} == set()
    assert min(map(int, ranges)) >= 5
    assert "time() -" not in text  # the age of a scrape depends on two clocks
