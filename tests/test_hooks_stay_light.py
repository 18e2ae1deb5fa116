"""Importing a hook into a training script must not import the monitor or a framework."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.programs import ROOT, ran_python

HEAVY = {
    "pynvml", "prometheus_client", "psutil", "rich", "keras", "jax", "tensorflow", "torch", "numpy",
}  # fmt: skip
UPPER_LAYERS = ("gpumon.sources", "gpumon.pipeline", "gpumon.outlets", "gpumon.cli")


def loaded_by(statement: str) -> tuple[list[str], int]:
    """The modules and the number of threads of a new interpreter after this statement."""
    report = "print(json.dumps([[*sys.modules], threading.active_count()]))"
    done = ran_python("-c", f"import json, sys, threading\n{statement}\n{report}")
    modules, threads = json.loads(done.stdout)
    return modules, threads


class TestImporting:
    @pytest.mark.parametrize(
        "statement",
        [
            "import gpumon",
            "import trainer_hooks.devices\nfrom trainer_hooks import phase, timed",
            "import trainer_hooks.trainers.tagged_run",
            "from trainer_hooks.prefetch import prefetch_to_device",
            "from trainer_hooks.batches import fixed_batches",
        ],
    )
    def test_loads_no_heavy_package_and_starts_no_thread(self, statement: str) -> None:
        modules, threads = loaded_by(statement)

        assert HEAVY.isdisjoint(name.split(".")[0] for name in modules)
        assert [name for name in modules if name.startswith(UPPER_LAYERS)] == []
        assert threads == 1

    def test_heavy_import_is_found(self) -> None:
        assert "rich" in loaded_by("import rich")[0]


class TestAHookOfKerasWithoutKeras:
    @pytest.mark.parametrize(
        ("name", "texts"),
        [
            ("PhaseTagger", ("`pip install keras`", " phase, timed and step ")),
            ("multi_gpu_model", ("multi_gpu_model needs Keras on TensorFlow", "trainer_hooks.ddp")),
            ("RatioBalancer", ("RatioBalancer needs Keras on TensorFlow", "trainer_hooks.ddp")),
        ],
    )
    def test_says_what_is_missing_and_what_needs_nothing(
        self, name: str, texts: tuple[str, ...]
    ) -> None:
        printed = error_without("keras", ROOT, name=name)

        assert [text for text in texts if text not in printed] == []

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

    def test_names_a_missing_backend(self, tmp_path: Path) -> None:
        (tmp_path / "keras.py").write_text("import tensorflow")

        printed = error_without("tensorflow", tmp_path, ROOT)

        for text in ("on tensorflow", "KERAS_BACKEND", "trainer_hooks.huggingface"):
            assert text in printed


def error_without(missing: str, *python_path: Path, name: str = "PhaseTagger") -> str:
    """The error of importing a hook where a module is missing."""
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        f"try: from trainer_hooks import {name}\n"
        "except ModuleNotFoundError as error: print(error)\n"
    )
    environ = {
        "KERAS_BACKEND": "tensorflow",  # other tests choose another one
        "PYTHONPATH": os.pathsep.join(map(str, python_path)),
    }
    return ran_python("-c", code, environ=environ).stdout
