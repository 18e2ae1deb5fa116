"""A counter that starts late is 0 in its first scrape, so that no increase is lost."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gpumon.core.accounting.totals import GpuTotals
from gpumon.core.phase import IdleCause, TrainingPhase
from gpumon.core.state import GpuState, MonitorState
from gpumon.outlets.metrics.prometheus import MetricsExporter
from tests.builders.state import S, StoppedClock, monitor_state, run, starved_gpu

IDLE = "gpumon_gpu_idle_seconds_total"
REASONS = "gpumon_gpu_input_wait_seconds_total"
PHASES = "gpumon_training_phase_seconds_total"
ERRORS = "gpumon_nvml_errors_total"
OPENMETRICS = "application/openmetrics-text"


def idle_gpu(input_wait_s: float = 0.0, **idle_s: float) -> GpuState:
    """A GPU that was observed for 100 s and settled all of its idle time."""
    idle_ns = {IdleCause(cause): round(amount * S) for cause, amount in idle_s.items()}
    waited_ns = round(input_wait_s * S)
    if waited_ns:
        idle_ns[IdleCause.INPUT_WAIT] = waited_ns
    totals = GpuTotals(
        observed_ns=100 * S,
        busy_ns=100 * S - sum(idle_ns.values()),
        idle_ns=idle_ns,
        input_wait_by_reason_ns={"disk_bound": waited_ns} if waited_ns else {},
    )
    return starved_gpu(totals=totals)


class Daemon:
    """Publishes one tick a second, and is scraped."""

    def __init__(self) -> None:
        self.clock = StoppedClock()
        self.exporter = MetricsExporter(clock=self.clock, version="0.1.0")

    def tick(self, *gpus: GpuState, after_s: float = 1.0, **changes: Any) -> None:
        self.clock.now_ns += round(after_s * S)
        made = {"gpus": gpus, "runs": (), "call_errors": (), **changes}
        self.exporter.publish(monitor_state(taken_at_ns=self.clock.now_ns, **made))

    def scrape(self, accept: str | None = None) -> dict[str, dict[tuple[str, ...], float]]:
        """Values by metric, and by all labels but that of the GPU or run."""
        text = self.exporter.render(accept).body.decode().replace("# EOF\n", "")
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                names = [name for name in sample.labels if name not in ("uuid", "run")]
                labels = tuple(sample.labels[name] for name in names)
                found.setdefault(sample.name, {})[labels] = sample.value
        return found


class TestACause:
    def test_without_time_has_no_series(self) -> None:
        daemon = Daemon()
        daemon.tick(idle_gpu())

        assert IDLE not in daemon.scrape()

    def test_is_0_in_its_first_scrape_and_complete_in_the_next(self) -> None:
        daemon = Daemon()
        daemon.tick(idle_gpu())
        daemon.scrape()
        shown = []
        for second in (3, 4, 5):
            daemon.tick(idle_gpu(checkpoint=second))
            shown.append(daemon.scrape()[IDLE])

        assert shown == [{("checkpoint",): 0.0}, {("checkpoint",): 4.0}, {("checkpoint",): 5.0}]

    def test_stays_0_until_it_is_scraped(self) -> None:
        daemon = Daemon()
        for second in range(1, 60):
            daemon.tick(idle_gpu(checkpoint=second))

        assert daemon.scrape()[IDLE] == {("checkpoint",): 0.0}

    def test_is_complete_after_a_minute_without_a_scrape(self) -> None:
        daemon = Daemon()
        for second in range(1, 62):
            daemon.tick(idle_gpu(checkpoint=second))

        assert daemon.scrape()[IDLE] == {("checkpoint",): 61.0}

    def test_is_0_for_each_scrape_and_in_each_format_of_its_first_tick(self) -> None:
        daemon = Daemon()
        daemon.tick(idle_gpu(checkpoint=3))

        for accept in (None, OPENMETRICS, None):
            assert daemon.scrape(accept)[IDLE] == {("checkpoint",): 0.0}

    def test_that_occurs_later_than_others_is_0_alone(self) -> None:
        daemon = Daemon()
        daemon.tick(idle_gpu(checkpoint=3))
        daemon.scrape()
        daemon.tick(idle_gpu(checkpoint=3, callbacks=2))

        assert daemon.scrape()[IDLE] == {("checkpoint",): 3.0, ("callbacks",): 0.0}

    def test_of_a_gpu_that_was_lost_for_a_while_continues(self) -> None:
        daemon = Daemon()
        lost = idle_gpu(checkpoint=3)._replace(present=False, error="GPU is lost")
        daemon.tick(idle_gpu(checkpoint=3))
        daemon.scrape()
        daemon.tick(lost)
        assert IDLE not in daemon.scrape()
        daemon.tick(idle_gpu(checkpoint=4))

        assert daemon.scrape()[IDLE] == {("checkpoint",): 4.0}


@pytest.mark.parametrize("scrapes", [(1, 2, 3, 4, 5), (2, 4), (5,)])
def test_each_scrape_adds_up(scrapes: tuple[int, ...]) -> None:
    daemon = Daemon()
    for second in range(1, 6):
        daemon.tick(idle_gpu(second, checkpoint=2 * second if second > 2 else 0))
        if second in scrapes:
            values = daemon.scrape()
            idle = sum(values[IDLE].values())
            pending = values["gpumon_gpu_idle_pending_seconds"][()]
            busy = values["gpumon_gpu_busy_seconds_total"][()]
            assert busy + idle + pending == values["gpumon_gpu_observed_seconds_total"][()]


def test_a_reason_is_0_first_and_then_adds_up_to_its_cause() -> None:
    daemon = Daemon()
    shown = []
    for second in (3, 4):
        daemon.tick(idle_gpu(input_wait_s=second))
        values = daemon.scrape()
        shown.append((values[IDLE], values[REASONS]))

    cause, reason = ("input_wait",), ("disk_bound",)
    assert shown == [({cause: 0.0}, {reason: 0.0}), ({cause: 4.0}, {reason: 4.0})]


class TestAPhase:
    def phases(self, daemon: Daemon, wall_s: int, **phase_s: int) -> dict[tuple[str, ...], float]:
        phase_ns = {TrainingPhase(name): amount * S for name, amount in phase_s.items()}
        daemon.tick(runs=(run(phase_ns=phase_ns, wall_ns=wall_s * S),))
        return daemon.scrape()[PHASES]

    def test_of_a_new_run_is_0_first(self) -> None:
        daemon = Daemon()

        assert self.phases(daemon, 14, start_up=14) == {("start_up",): 0.0}
        assert self.phases(daemon, 29, start_up=20, compile=9) == {
            ("start_up",): 20.0,
            ("compile",): 0.0,
        }

    def test_of_a_run_that_is_older_than_the_daemon_is_complete_at_once(self) -> None:
        daemon = Daemon()

        assert self.phases(daemon, 3_600, start_up=20, train_step=3_580, checkpoint=0) == {
            ("start_up",): 20.0,
            ("train_step",): 3_580.0,
        }
        later = self.phases(daemon, 3_615, start_up=20, train_step=3_590, checkpoint=5)
        assert later[("checkpoint",)] == 0.0


class TestACounterOfARun:
    COUNTERS = ("steps_total", "samples_total", "first_input_wait_seconds_total",
                "ratio_changes_total")  # fmt: skip

    def counters(self, daemon: Daemon, wall_s: int, steps: int) -> list[float | None]:
        one = run(
            wall_ns=wall_s * S, steps=steps, samples=32 * steps, first_input_wait_ns=2 * S,
            shares={"GPU-a": 1.0}, ratio_changes=1,
        )  # fmt: skip
        daemon.tick(runs=(one,))
        values = daemon.scrape()
        return [values[f"gpumon_training_{name}"].get(()) for name in self.COUNTERS]

    def test_of_a_new_run_is_0_first(self) -> None:
        daemon = Daemon()

        assert self.counters(daemon, 14, steps=100) == [0.0, 0.0, 0.0, 0.0]
        assert self.counters(daemon, 29, steps=200) == [200.0, 6_400.0, 2.0, 1.0]

    def test_of_a_run_that_is_older_than_the_daemon_is_complete_at_once(self) -> None:
        assert self.counters(Daemon(), 3_600, steps=100) == [100.0, 3_200.0, 2.0, 1.0]

    def test_without_an_answer_has_no_series(self) -> None:
        daemon = Daemon()
        daemon.tick(runs=(run(wall_ns=S, samples=None, first_input_wait_ns=None),))
        values = daemon.scrape()

        assert "gpumon_training_samples_total" not in values
        assert "gpumon_training_first_input_wait_seconds_total" not in values


def test_failed_calls_are_counted_from_0() -> None:
    daemon = Daemon()
    shown = []
    for count in (1, 2):
        daemon.tick(call_errors=(("nvmlDeviceGetMemoryInfo", 999, count),))
        shown.append([*daemon.scrape()[ERRORS].values()])

    assert shown == [[0.0], [2.0]]


def test_an_xid_is_shown_at_once_because_one_must_raise_the_alert() -> None:
    daemon = Daemon()
    daemon.tick(starved_gpu(xid_errors=((79, 1),)))

    assert daemon.scrape()["gpumon_gpu_xid_errors_total"] == {("79",): 1.0}


def test_what_is_known_of_runs_and_gpus_ends_with_them() -> None:
    exporter = MetricsExporter(clock=StoppedClock(), version="0.1.0")

    def tick(number: int) -> MonitorState:
        return monitor_state(runs=(run(f"run-{number}", pid=number),), taken_at_ns=number * S)

    for number in range(100):
        exporter.publish(tick(number))
    assert len(exporter._budget._first_zeros._known) < 10
