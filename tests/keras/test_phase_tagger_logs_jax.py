"""``PhaseTagger`` tells other callbacks what an epoch waited for, and people what a fit cost."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from tests.keras.fake_daemon import FakeDaemon
from tests.keras.later import b

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


def logging_tagger(**said: Any) -> Any:
    return b.tagger(logs=True, **said)


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


class EpochEdges:
    """When each epoch began and ended, noted by a callback of its own."""

    def __init__(self) -> None:
        import time

        import keras

        self.spans_ns: list[tuple[int, int]] = []
        self.callback = keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: self.spans_ns.append((time.monotonic_ns(), 0)),
            on_epoch_end=lambda epoch, logs: self.spans_ns.append(
                (self.spans_ns.pop()[0], time.monotonic_ns())
            ),
        )


class TestTheWaitOfAnEpoch:
    @pytest.mark.measured
    @pytest.mark.oldest_keras
    def test_is_a_ratio_of_it_as_true_as_the_source(self) -> None:
        model, source, edges = b.small_model(), b.SlowBatches(0.02), EpochEdges()
        b.fit(model, b.SlowBatches(0.0), steps=2, epochs=1)

        history = b.fit(model, source, logging_tagger(), edges.callback, steps=15, epochs=2)

        for told, (began, ended) in zip(
            history.history["input_wait_ratio"], edges.spans_ns, strict=True
        ):
            waited = sum(end - start for start, end in source.spans_ns if began <= start < ended)
            assert told == pytest.approx(waited / (ended - began), abs=0.1)
            assert 0.0 < told <= 1.0

    @pytest.mark.measured
    def test_is_not_that_of_its_validation(self) -> None:
        model, source = b.small_model(), b.SlowBatches(0.03)

        history = model.fit(
            *b.rows_and_sums(160),
            batch_size=16,
            epochs=2,
            verbose=0,
            validation_data=iter(source),
            validation_steps=10,
            callbacks=[logging_tagger()],
        )

        assert history.history["input_wait_ratio"][1] < 0.2
        assert b.phase_ns()["input_wait"] > 15 * 30 * MS

    @pytest.mark.measured
    def test_is_not_that_of_a_validation_by_somebodys_callback(self) -> None:
        import keras

        class Evaluate(keras.callbacks.Callback):  # type: ignore[misc]
            def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
                self.model.evaluate(iter(b.SlowBatches(0.03)), steps=10, verbose=0)

        model = b.small_model()
        model.evaluate(*b.rows_and_sums(32), verbose=0)

        history = model.fit(
            *b.rows_and_sums(160),
            batch_size=16,
            verbose=0,
            callbacks=[logging_tagger(), Evaluate()],
        )

        assert history.history["input_wait_ratio"][0] < 0.2

    @pytest.mark.measured
    def test_reaches_every_callback_wherever_the_tagger_stands(self, tmp_path: Path) -> None:
        import keras

        seen = []
        look = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: seen.append({**logs})
        )
        csv_logger = keras.callbacks.CSVLogger(tmp_path / "epochs.csv")

        history = b.fit(
            b.small_model(), b.SlowBatches(0.0), look, csv_logger, logging_tagger(), steps=5
        )

        assert [epoch["input_wait_ratio"] for epoch in seen] == history.history["input_wait_ratio"]
        assert [float(row["input_wait_ratio"]) for row in rows_of(tmp_path / "epochs.csv")] == (
            history.history["input_wait_ratio"]
        )

    def test_is_not_there_where_nobody_wants_it(self) -> None:
        history = b.fit(b.small_model(), b.SlowBatches(0.0), b.tagger(logs=False), steps=5)

        assert set(history.history) == {"loss"}


class TestTheGpusOfAnEpoch:
    @pytest.mark.measured
    def test_have_no_ratio_without_a_daemon(self) -> None:
        history = b.fit(b.small_model(), b.SlowBatches(0.0), logging_tagger(gpus=[0]), steps=5)

        assert set(history.history) == {"loss", "input_wait_ratio"}

    @pytest.mark.measured
    def test_have_the_ratios_of_what_the_daemon_counted_meanwhile(self, daemon: FakeDaemon) -> None:
        import keras

        daemon.counts(observed_s=100, busy_s=70, in_use_s=90, starved_s=5)
        ticks = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs: daemon.counts(
                observed_s=110, busy_s=73, in_use_s=98, starved_s=7, suspected_s=2
            )
        )

        history = b.fit(
            b.small_model(),
            b.SlowBatches(0.06),
            ticks,
            logging_tagger(gpus=["GPU-0"]),
            steps=5,
            epochs=1,
        )

        assert history.history["gpu_busy_ratio"] == [pytest.approx(0.3)]
        assert history.history["starved_ratio"] == [pytest.approx(0.5)]

    @pytest.mark.measured
    def test_that_appear_later_do_not_break_a_csv_file(
        self, daemon: FakeDaemon, tmp_path: Path
    ) -> None:
        import keras

        csv_logger = keras.callbacks.CSVLogger(tmp_path / "epochs.csv")
        ticks = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: daemon.counts(observed_s=9 * epoch, busy_s=3 * epoch)
        )

        history = b.fit(
            b.small_model(),
            b.SlowBatches(0.06),
            logging_tagger(gpus=[0]),
            csv_logger,
            ticks,
            steps=5,
            epochs=4,
        )

        assert "gpu_busy_ratio" not in history.history  # as in the first epoch
        rows = rows_of(tmp_path / "epochs.csv")
        assert [row["epoch"] for row in rows] == ["0", "1", "2", "3"]
        assert all("gpu_busy_ratio" not in row for row in rows)

    @pytest.mark.measured
    def test_that_vanish_with_the_daemon_do_not_break_a_csv_file(
        self, daemon: FakeDaemon, tmp_path: Path
    ) -> None:
        import keras

        csv_logger = keras.callbacks.CSVLogger(tmp_path / "epochs.csv")
        daemon.counts(observed_s=1, busy_s=1)
        ticks = keras.callbacks.LambdaCallback(
            on_epoch_begin=lambda epoch, logs: daemon.counts(observed_s=9, busy_s=3),
            on_epoch_end=lambda epoch, logs: daemon.dies(),
        )

        b.fit(
            b.small_model(),
            b.SlowBatches(0.06),
            logging_tagger(gpus=[0]),
            csv_logger,
            ticks,
            steps=5,
            epochs=1,
        )
        csv_rows = rows_of(tmp_path / "epochs.csv")

        assert float(csv_rows[0]["gpu_busy_ratio"]) == pytest.approx(0.25)


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
        import statistics
        from itertools import pairwise

        model, source = b.small_model(b.SleepingCompute(0.002)), b.SlowBatches(0.03)
        others = [b.an_ordinary_callback()] if ordinary else []
        model.fit(iter(source), steps_per_epoch=30, verbose=2, callbacks=[b.tagger(), *others])

        line = self.line(capsys.readouterr().out)

        between = [after[0] - before[0] for before, after in pairwise(source.spans_ns[5:])]
        true_ms = statistics.median(between) / MS
        assert float(line["median"]) == pytest.approx(true_ms, rel=0.1)
        assert float(line["rate"]) == pytest.approx(1000 * b.BATCH / true_ms, rel=0.3)
        assert (line["steps"], line["left_out"]) == ("30", "3")
        assert re.search(
            r"% of the time (waiting for input|compiling).*gpumon report", line["rest"]
        )

    def test_counts_the_steps_of_executions_of_several(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        model = b.small_model(b.SleepingCompute(0.002), steps_per_execution=4)

        model.fit(
            iter(b.SlowBatches(0.01)),
            steps_per_epoch=16,
            epochs=2,
            verbose=2,
            callbacks=[b.tagger()],
        )

        line = self.line(capsys.readouterr().out)
        assert (line["steps"], line["left_out"]) == ("32", "4")
        assert float(line["median"]) < 40

    @pytest.mark.parametrize("verbose", [1, 2, "auto"])
    def test_stands_on_a_line_of_its_own(
        self, verbose: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        b.small_model().fit(*b.rows_and_sums(256), verbose=verbose, callbacks=[b.tagger()])

        printed = capsys.readouterr().out
        assert printed.endswith("\n")
        assert printed.rstrip("\n").rsplit("\n", 1)[1].startswith("gpumon: 8 steps in ")
        assert printed.count("gpumon:") == 1

    def test_is_not_printed_where_verbose_is_0(self, capsys: pytest.CaptureFixture[str]) -> None:
        b.small_model().fit(*b.rows_and_sums(256), verbose=0, callbacks=[b.tagger()])

        assert capsys.readouterr().out == ""

    def test_goes_to_the_log_where_keras_logs(
        self, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
    ) -> None:
        import keras

        caplog.set_level("INFO")
        keras.config.disable_interactive_logging()
        try:
            b.small_model().fit(*b.rows_and_sums(256), verbose=2, callbacks=[b.tagger()])
        finally:
            keras.config.enable_interactive_logging()

        assert "gpumon:" not in capsys.readouterr().out
        assert [one for one in caplog.messages if one.startswith("gpumon: 8 steps in ")]
