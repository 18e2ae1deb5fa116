"""Scrapes with hostile names, and by two scrapers at once."""

from __future__ import annotations

import json
import os
import sys
import threading
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.builders.state import S, monitor_state, run
from tests.serving import ask, serving


def metric(text: str, name: str) -> dict[tuple[str, ...], float]:
    return {
        tuple(sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }


class TestHostileNames:
    @pytest.mark.parametrize(
        "name",
        [os.fsdecode(b"caf\xff"), "two\nlines", "x" * 1_000_000, "\u202egnp.exe", 'q"uo\\te', "\0"],
        ids=["not-utf8", "newline", "megabyte", "rtl", "quotes", "nul"],
    )
    def test_leave_the_scrape_valid_and_short(self, name: str) -> None:
        state = monitor_state(runs=(run(name, job=name, framework=name),))
        with serving(state) as server:
            scraped, reported = ask(server, "/metrics"), ask(server, "/api/v1/state")

        labels = next(iter(metric(scraped.text, "gpumon_training_run_info")))
        assert all(len(label) <= 128 and label.isprintable() for label in labels)
        assert len(scraped.body) < 40_000
        assert json.loads(reported.body)["runs"][0]["steps"] == 1234

    def test_by_the_thousand_are_capped_and_counted(self) -> None:
        runs = tuple(run(f"loop-{number}") for number in range(10_000))
        with serving(monitor_state(runs=runs)) as server:
            text = ask(server, "/metrics").text

        assert len(metric(text, "gpumon_training_steps_total")) == 64
        dropped = metric(text, "gpumon_label_sets_dropped_total")
        assert dropped[("gpumon_training",)] == 10_000 - 64


class TestTwoScrapers:
    def test_always_read_sums_that_add_up_while_the_state_changes(self) -> None:
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        open_sums: list[float] = []
        done = threading.Event()
        try:
            with serving() as server:
                server.publish(monitor_state())

                def scrape() -> None:
                    while not done.is_set():
                        text = ask(server, "/metrics").text
                        observed = metric(text, "gpumon_gpu_observed_seconds_total")
                        reported = sum(metric(text, "gpumon_gpu_busy_seconds_total").values())
                        reported += sum(metric(text, "gpumon_gpu_idle_seconds_total").values())
                        reported += sum(metric(text, "gpumon_gpu_idle_pending_seconds").values())
                        open_sums.append(sum(observed.values()) - reported)

                scrapers = [threading.Thread(target=scrape) for _ in range(2)]
                for scraper in scrapers:
                    scraper.start()
                for tick in range(100):
                    server.publish(monitor_state(taken_at_ns=1_000 * S + tick, samples_total=tick))
                    time.sleep(0.01)
                done.set()
                for scraper in scrapers:
                    scraper.join()
        finally:
            done.set()
            sys.setswitchinterval(before)

        assert len(open_sums) > 4
        assert max(map(abs, open_sums)) < 1e-6
