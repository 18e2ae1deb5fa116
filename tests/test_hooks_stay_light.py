"""A hook lives in someone's training: importing it must not bring the monitor along."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.programs import ROOT, ran_python

HEAVY = (
    "pynvml",
    "prometheus_client",
    "psutil",
    "rich",
    "keras",
    "jax",
    "tensorflow",
    "torch",
    "numpy",
)
UPSTAIRS = ("gpumon.sources", "gpumon.pipeline", "gpumon.outlets", "gpumon.cli")


def loaded_by(statement: str) -> list[str]:
    """The modules that a fresh interpreter has after `statement`, and its thread count."""
    report = "print(json.dumps([*sys.modules, str(threading.active_count())]))"
    done = ran_python("-c", f"import json, sys, threading\n{statement}\n{report}")
    names: list[str] = json.loads(done.stdout)
    return names


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    return loaded_by("import trainer_hooks.devices\nfrom trainer_hooks import phase, timed")


class TestImportingTheHooks:
    @pytest.mark.parametrize("package", HEAVY)
    def test_does_not_load(self, loaded: list[str], package: str) -> None:
        assert [name for name in loaded if name.split(".")[0] == package] == []

    def test_learns_of_torchs_compiling_beside_neither_torch_nor_keras(self) -> None:
        names = loaded_by("import trainer_hooks.trainers.tagged_run")

        assert [name for name in names if name.split(".")[0] in ("keras", "torch")] == []

    def test_loads_no_floor_above_the_ground(self, loaded: list[str]) -> None:
        assert [name for name in loaded if name.startswith(UPSTAIRS)] == []

    def test_starts_no_thread(self, loaded: list[str]) -> None:
        assert loaded[-1] == "1"


def test_a_heavy_import_would_be_seen() -> None:
    assert "rich" in loaded_by("import rich")


def test_the_front_door_of_gpumon_is_as_light() -> None:
    loaded = loaded_by("import gpumon")

    assert [name for name in loaded if name.split(".")[0] in HEAVY] == []
    assert [name for name in loaded if name.startswith(UPSTAIRS)] == []


class TestTheHookOfKerasWithoutKeras:
    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("PhaseTagger", ("`pip install keras`", " phase, timed and step ")),
            ("multi_gpu_model", ("multi_gpu_model needs Keras on TensorFlow", "trainer_hooks.ddp")),
            ("RatioBalancer", ("RatioBalancer needs Keras on TensorFlow", "trainer_hooks.ddp")),
        ],
    )
    def test_says_what_is_missing_and_what_needs_nothing(
        self, name: str, words: tuple[str, ...]
    ) -> None:
        printed = refusal_without("keras", ROOT, name=name)

        assert [word for word in words if word not in printed] == []

    @pytest.mark.parametrize(
        ("backend", "equal"),
        [("jax", "keras.distribution.DataParallel"), ("torch", "torch's DistributedDataParallel")],
    )
    @pytest.mark.parametrize("name", ["multi_gpu_model", "RatioBalancer"])
    def test_names_what_splits_batches_on_another_backend(
        self, name: str, backend: str, equal: str
    ) -> None:
        done = ran_python(
            "-c", f"from trainer_hooks import {name}", environ={"KERAS_BACKEND": backend}
        )

        (error,) = done.stderr.splitlines()[-1:]
        assert error.startswith(f"ImportError: {name} needs Keras on TensorFlow")
        assert f"backend is {backend} here" in error
        assert f"use {equal} for equal GPUs, and trainer_hooks.ddp" in error

    def test_or_which_backend_it_lacks(self, tmp_path: Path) -> None:
        (tmp_path / "keras.py").write_text("import tensorflow")

        printed = refusal_without("tensorflow", tmp_path, ROOT)

        for word in ("on tensorflow", "KERAS_BACKEND", "trainer_hooks.huggingface"):
            assert word in printed


def refusal_without(missing: str, *found_in: Path, name: str = "PhaseTagger") -> str:
    """What is reported to someone who asks for the hook of Keras."""
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        f"try: from trainer_hooks import {name}\n"
        "except ModuleNotFoundError as error: print(error)\n"
    )
    environ = {
        "KERAS_BACKEND": "tensorflow",  # other rooms of tests choose another
        "PYTHONPATH": os.pathsep.join(map(str, found_in)),
    }
    return ran_python("-c", code, environ=environ).stdout
