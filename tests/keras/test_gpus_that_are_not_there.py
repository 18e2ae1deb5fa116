"""A tagger that names a GPU that is not there, or none where GPUs are simulated, says so once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trainer_hooks
from tests.keras.fake_daemon import FakeDaemon
from tests.keras.later import b
from trainer_hooks.ring.process_ring import process_ring


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


def settings(recorded: pytest.WarningsRecorder) -> list[str]:
    return [str(one.message) for one in recorded if str(one.message).startswith("to gpumon")]


@pytest.mark.keras_torch  # they are looked for before anything of a framework is
@pytest.mark.usefixtures("daemon")
class TestATaggerWhoseGpuIsNotThere:
    @pytest.mark.parametrize(
        ("gpus", "named"),
        [([99], ["GPU 99", "GPUs 0 and 1"]), (None, ["GPUMON_GPUS=0", "gpus=[0]"])],
        ids=["one that is none", "none where they are simulated"],
    )
    def test_is_recorded_once_and_tags_all_the_same(
        self, gpus: Any, named: list[str], recwarn: pytest.WarningsRecorder
    ) -> None:
        tagger = trainer_hooks.PhaseTagger(gpus=gpus)
        fit(tagger)
        fit(tagger)

        (text,) = settings(recwarn)
        assert [name for name in named if name in text] == named
        assert b.recorded_steps() == 8

    def test_receives_nothing_of_gpus_that_are_there(
        self, recwarn: pytest.WarningsRecorder
    ) -> None:
        fit(trainer_hooks.PhaseTagger(gpus="0, GPU-11"))

        assert settings(recwarn) == []


class TestAModelOnTheCpu:
    """As all are in these tests."""

    @pytest.mark.parametrize(
        "framework",
        [
            pytest.param(name, marks=getattr(pytest.mark, f"keras_{name}"))
            for name in ("jax", "tensorflow", "torch")
        ],
    )
    def test_is_recorded_of_whatever_its_framework_is(self, framework: str) -> None:
        fit(trainer_hooks.PhaseTagger(gpus=[0]))

        writer = process_ring().writer
        assert writer is not None
        assert (writer.facts.framework, writer.facts.on_cpu) == (f"keras/{framework}", True)
