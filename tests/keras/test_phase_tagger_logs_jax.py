"""``PhaseTagger`` adds the waits of an epoch to its logs, and prints what a fit cost."""

from __future__ import annotations

import csv
import re
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.keras.fake_daemon import FakeDaemon
from tests.keras.later import builders, keras

pytestmark = pytest.mark.keras_jax
MS = 1_000_000
LINE = re.compile(
    r"^gpumon: (?P<steps>[\d,]+) steps in (?P<wall>[\d.,]+) s, (?P<median>[\d.,]+) ms a step "
    r"\(median, (?P<left_out>\d+) warm-up steps left out\), (?P<rate>[\d,]+) samples/s; "
    r"(?P<rest>.+)$",
    re.MULTILINE,
)


@pytest.fixture
def daemon(own_runtime_folder: Path) -> FakeDaemon:
    """Only its state file: what is in it is the test's own."""
    return FakeDaemon(own_runtime_folder)


def fit(*callbacks: Any, wait_s: float = 0.0, epochs: int = 2) -> Any:
    """The history of a small training."""
    source = builders.SlowBatches(wait_s)
    return builders.fit(builders.small_model(), source, *callbacks, steps=5, epochs=epochs).history


def tagger(**settings: Any) -> Any:
    return builders.tagger(logs=True, **settings)


def calling(**methods: Callable[[Any, Any], object]) -> Any:
    return keras.callbacks.LambdaCallback(**methods)


class Csv:
    """What Keras' own logger writes of the epochs."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "epochs.csv"
        self.logger = keras.callbacks.CSVLogger(self._path)

    def column(self, name: str) -> list[str | None]:
        with self._path.open(newline="") as file:
            return [row.get(name) for row in csv.DictReader(file)]


class TestTheWaitOfAnEpoch:
    @pytest.mark.measured
    @pytest.mark.versions
    def test_is_a_ratio_of_it_as_true_as_the_source(self) -> None:
        model, source, edges_ns = builders.warmed_model(), builders.SlowBatches(0.02), list[int]()
        note = calling(
            on_epoch_begin=lambda epoch, logs: edges_ns.append(time.monotonic_ns()),
            on_epoch_end=lambda epoch, logs: edges_ns.append(time.monotonic_ns()),
        )

        recorded = builders.fit(model, source, tagger(), note).history["input_wait_ratio"]

        for ratio, began, ended in zip(recorded, edges_ns[::2], edges_ns[1::2], strict=True):
            waited = sum(end - start for start, end in source.spans_ns if began <= start < ended)
            assert ratio == pytest.approx(waited / (ended - began), abs=0.1)
            assert 0.0 < ratio <= 1.0

    @pytest.mark.measured
    @pytest.mark.parametrize("is_of_a_callback", [False, True])
    def test_is_not_that_of_a_validation(self, is_of_a_callback: bool) -> None:
        model, slow = builders.small_model(), iter(builders.SlowBatches(0.03))
        if is_of_a_callback:
            act = builders.Does(
                lambda own: own.model.evaluate(slow, steps=10, verbose=0), "on_epoch_begin"
            )
            history = builders.fit_rows(model, 160, tagger(), act, epochs=2).history
        else:
            validated = {"validation_data": slow, "validation_steps": 10}
            history = builders.fit_rows(model, 160, tagger(), epochs=2, **validated).history

        assert history["input_wait_ratio"][1] < 0.2

    @pytest.mark.measured
    def test_reaches_every_callback_wherever_the_tagger_stands(self, tmp_path: Path) -> None:
        seen: list[float] = []
        look = calling(on_epoch_end=lambda epoch, logs: seen.append(logs["input_wait_ratio"]))
        table = Csv(tmp_path)

        history = fit(look, table.logger, tagger())

        assert seen == history["input_wait_ratio"]
        assert [float(recorded or -1) for recorded in table.column("input_wait_ratio")] == seen

    def test_is_absent_on_request(self) -> None:
        assert set(fit(builders.tagger(logs=False))) == {"loss"}


@pytest.mark.measured
class TestTheGpusOfAnEpoch:
    def test_have_the_ratios_of_what_the_daemon_counted_meanwhile(self, daemon: FakeDaemon) -> None:
        daemon.counts(observed_s=100, busy_s=70, in_use_s=90, starved_s=5)
        later: dict[str, Any] = {
            "observed_s": 110,
            "busy_s": 73,
            "in_use_s": 98,
            "starved_s": 7,
            "suspected_s": 2,
        }
        ticks = calling(on_train_batch_end=lambda batch, logs: daemon.counts(**later))

        history = fit(ticks, tagger(gpus=["GPU-0"]), wait_s=0.06, epochs=1)

        assert history["gpu_busy_ratio"] == [pytest.approx(0.3)]
        assert history["starved_ratio"] == [pytest.approx(0.5)]

    def test_later_gpu_keys_do_not_break_a_csv_file(
        self, daemon: FakeDaemon, tmp_path: Path
    ) -> None:
        def tick(epoch: int, logs: Any) -> None:
            daemon.counts(observed_s=9 * epoch, busy_s=3 * epoch)

        table = Csv(tmp_path)
        callbacks = [tagger(gpus=[0]), table.logger, calling(on_epoch_end=tick)]

        history = fit(*callbacks, wait_s=0.06, epochs=4)

        assert "gpu_busy_ratio" not in history  # as in the first epoch
        assert table.column("epoch") == ["0", "1", "2", "3"]
        assert table.column("gpu_busy_ratio") == [None] * 4

    @pytest.mark.measured
    def test_missing_gpu_keys_do_not_break_a_csv_file(
        self, daemon: FakeDaemon, tmp_path: Path
    ) -> None:
        daemon.counts(observed_s=1, busy_s=1)
        ticks = calling(
            on_epoch_begin=lambda epoch, logs: daemon.counts(observed_s=9, busy_s=3),
            on_epoch_end=lambda epoch, logs: daemon.dies(),
        )
        table = Csv(tmp_path)

        fit(tagger(gpus=[0]), table.logger, ticks, wait_s=0.06, epochs=1)

        (recorded,) = table.column("gpu_busy_ratio")
        assert float(recorded or -1) == pytest.approx(0.25)


class TestTheLineAtTheEnd:
    def line(self, text: str) -> re.Match[str]:
        found = LINE.search(text)
        assert found, text
        return found

    @pytest.mark.measured
    @pytest.mark.parametrize("ordinary", [False, True], ids=["asynchronous", "synchronous"])
    def test_has_the_median_step_the_pace_and_what_took_the_time(
        self, ordinary: bool, capsys: pytest.CaptureFixture[str]
    ) -> None:
        model, source = (
            builders.small_model(builders.SleepingCompute(0.002)),
            builders.SlowBatches(0.03),
        )
        callbacks = [builders.tagger(), *builders.others(ordinary)]
        model.fit(iter(source), steps_per_epoch=30, verbose=2, callbacks=callbacks)

        line = self.line(capsys.readouterr().out)

        between = [after[0] - before[0] for before, after in pairwise(source.spans_ns[5:])]
        true_ms = statistics.median(between) / MS
        assert float(line["median"]) == pytest.approx(true_ms, rel=0.1)
        assert float(line["rate"]) == pytest.approx(1000 * builders.BATCH / true_ms, rel=0.3)
        assert (line["steps"], line["left_out"]) == ("30", "3")
        assert re.search(r" (input|compiling)[ :].*`gpumon ", line["rest"])

    @pytest.mark.parametrize("verbose", [1, 2])
    def test_stands_on_a_line_of_its_own(
        self, verbose: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        builders.fit_rows(builders.small_model(), 128, builders.tagger(), verbose=0)
        builders.fit_rows(builders.small_model(), 128, builders.tagger(), verbose=verbose)

        printed = capsys.readouterr().out
        assert printed.endswith("\n")
        assert printed.rstrip("\n").rsplit("\n", 1)[1].startswith("gpumon: 8 steps")
        assert printed.count("gpumon:") == 1

    def test_goes_to_the_log_where_keras_logs(
        self, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level("INFO")
        keras.config.disable_interactive_logging()
        try:
            builders.fit_rows(builders.small_model(), 128, builders.tagger(), verbose=2)
        finally:
            keras.config.enable_interactive_logging()

        assert "gpumon:" not in capsys.readouterr().out
        assert [one for one in caplog.messages if one.startswith("gpumon: 8 steps")]


def fail(*_: object, **__: object) -> Any:
    raise RuntimeError("a mistake")


class TestFiguresThatFail:
    @pytest.mark.parametrize("where", ["closing_line", "StepTimes"])
    def test_are_left_out_with_one_warning_and_the_run_is_tagged(
        self, where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        from trainer_hooks.keras import fit_figures

        monkeypatch.setattr(fit_figures, where, fail)
        with builders.one_warning("no figures of this run"):
            builders.fit_rows(
                builders.small_model(), 4 * builders.BATCH, builders.tagger(), epochs=2, verbose=2
            )

        assert "gpumon:" not in capsys.readouterr().out
        entered = [event.phase.value for event in builders.records()]
        assert {"train_step", "input_wait"} <= set(entered)
        assert builders.present_phase().value == "other"
