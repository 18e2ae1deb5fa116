"""A tagger that names a GPU that is not there, or none where GPUs are simulated, says so once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trainer_hooks
from tests.keras.fake_daemon import FakeDaemon
from tests.keras.later import b


@pytest.fixture
def daemon(own_runtime_folder: Path) -> FakeDaemon:
    """It watches two simulated GPUs."""
    one = FakeDaemon(own_runtime_folder)
    one.document["simulated"] = True
    one.counts(0, "GPU-00")
    one.counts(1, "GPU-11")
    return one


def fit(tagger: Any) -> None:
    b.fit_rows(b.small_model(), 32, tagger, epochs=2)


def said(recorded: pytest.WarningsRecorder) -> list[str]:
    return [str(one.message) for one in recorded if str(one.message).startswith("to gpumon")]


@pytest.mark.usefixtures("each_backend", "daemon")
class TestATaggerWhoseGpuIsNotThere:
    def test_is_told_once_and_tags_all_the_same(self, recwarn: pytest.WarningsRecorder) -> None:
        tagger = trainer_hooks.PhaseTagger(gpus=[99])
        fit(tagger)
        fit(tagger)

        (text,) = said(recwarn)
        assert "names GPU 99, and there are GPU 0 and GPU 1: set" in text

    def test_hears_nothing_of_gpus_that_are_there(self, recwarn: pytest.WarningsRecorder) -> None:
        fit(trainer_hooks.PhaseTagger(gpus="0, GPU-11"))

        assert said(recwarn) == []

    def test_is_told_what_to_set_where_gpus_are_simulated(
        self, recwarn: pytest.WarningsRecorder
    ) -> None:
        fit(trainer_hooks.PhaseTagger())

        (text,) = said(recwarn)
        assert "set GPUMON_GPUS=0 in its environment, or gpus=[0] in its tagger" in text
