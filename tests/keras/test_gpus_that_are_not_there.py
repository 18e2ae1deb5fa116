"""A tagger that names a GPU that is not there, or none where GPUs are simulated, warns once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import trainer_hooks
from tests.keras.fake_daemon import FakeDaemon
from tests.keras.later import builders

pytestmark = pytest.mark.keras_torch  # they are looked up before anything of a framework


@pytest.mark.parametrize(
    ("gpus", "named"),
    [
        ([99], ["GPU 99", "GPUs 0 and 1"]),
        (None, ["GPUMON_GPUS=0", "gpus=[0]"]),
        ("0, GPU-11", None),
    ],
    ids=["one that is none", "none where they are simulated", "those that are there"],
)
def test_two_fits_have_one_warning_and_are_tagged(
    gpus: Any,
    named: list[str] | None,
    own_runtime_folder: Path,
    recwarn: pytest.WarningsRecorder,
) -> None:
    daemon = FakeDaemon(own_runtime_folder)
    daemon.document["simulated"] = True
    daemon.counts(0, "GPU-00")
    daemon.counts(1, "GPU-11")

    tagger = trainer_hooks.PhaseTagger(gpus=gpus)
    for _ in range(2):
        builders.fit_rows(builders.small_model(), 32, tagger, epochs=2)

    texts = [str(one.message) for one in recwarn if str(one.message).startswith("to gpumon")]
    assert len(texts) == (named is not None)
    assert all(name in texts[0] for name in named or ())
    assert builders.recorded_steps() == 8
