"""Damaged answers of a Prometheus: a report whose figures are amounts, or one sentence."""

from __future__ import annotations

import json
from functools import partial
from math import isfinite
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import parse_qs

import pytest

from gpumon.core.codecs.fleet_codec import encode_fleet_report
from gpumon.errors import PrometheusError
from gpumon.outlets.plot.fleet_html import fleet_page
from gpumon.outlets.text.fleet_text import render_fleet_report
from gpumon.outlets.text.style import TextStyle
from gpumon.sources.prometheus.api import PrometheusApi, ServerAnswer
from gpumon.sources.prometheus.fleet_source import read_fleet_report
from tests.builders.state import StoppedClock
from tests.fake_prometheus import WEEK_S, FakePrometheus, fleet
from tests.fuzz.fuzzing import Case, Fuzz, for_seconds_and_minutes, fuzz_here
from tests.fuzz.mutations import BYTES, mutated, with_other_value
from tests.waiting import no_hang

_CI_SECONDS = 2.0
_MOST_GROWTH_KIB = 32_768
_SERVER = FakePrometheus(fleet(6))
_DAMAGED_SHARE, _FAILED_SHARE = 0.05, 0.002


class TestAnswersOfAPrometheus:
    @for_seconds_and_minutes(_CI_SECONDS)
    def test_give_a_report_or_a_sentence(
        self, tmp_path: Path, seconds: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        fuzz_here(Fuzz(tmp_path, seconds), partial(report, monkeypatch), most_kib=_MOST_GROWTH_KIB)


def report(monkeypatch: pytest.MonkeyPatch, case: Case) -> None:
    def answer(_: PrometheusApi, words: str) -> ServerAnswer:
        body = _SERVER.reply(parse_qs(words)["query"][0]).body
        if case.random.random() < _DAMAGED_SHARE:
            body = case.tries(damaged(case.random, body))
        status = 503 if case.random.random() < _FAILED_SHARE else 200
        return ServerAnswer(status, "application/json", "", body)

    monkeypatch.setattr(PrometheusApi, "_fetch", answer)
    with no_hang():
        try:
            found = read_fleet_report(PrometheusApi("http://p"), WEEK_S, StoppedClock())
        except PrometheusError as error:
            assert str(error).isprintable()  # noqa: PT017  (most cases have no error)
            return
        lines = render_fleet_report(found, TextStyle()).splitlines()
        assert all(line.isprintable() and len(line) <= 80 for line in lines if "://" not in line)
        assert b"<script" not in fleet_page(found)
        check_amounts(encode_fleet_report(found))


def damaged(random: Random, body: bytes) -> bytes:
    if random.random() < 0.3:
        return mutated(random, body, BYTES)
    document = json.loads(body)
    for _ in range(random.choice((1, 1, 3))):
        document = with_other_value(random, document)
    return json.dumps(document).encode()


def check_amounts(document: Any) -> None:
    """Every number is finite, and 0 or more."""
    if isinstance(document, dict):
        document = [*document.values()]
    if isinstance(document, list):
        for one in document:
            check_amounts(one)
    elif isinstance(document, float | int):
        assert isfinite(document)
        assert document >= 0
