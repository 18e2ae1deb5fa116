"""Scripts for several GPUs run unchanged on stand-ins."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs import ran

pytestmark = pytest.mark.multi_gpu

LATE = """
import sys
import keras, numpy as np
from local_module import WIDTH
model = keras.Sequential([keras.Input((WIDTH,)), keras.layers.Dense(1)])  # TensorFlow has started

def main():
    from trainer_hooks import RatioBalancer, multi_gpu_model
    parallel = multi_gpu_model(model, gpus=[0, "GPU:1"], ratios=[3, 2])
    parallel.compile("adam", "mse")
    limits = {"GPU:0": 8, "GPU:1": 8}
    rows = np.ones((10, WIDTH)), np.ones((10, 1))
    parallel.fit(*rows, batch_size=5, verbose=0, callbacks=[RatioBalancer(max_samples=limits)])
    rate, steps = float(parallel.optimizer.learning_rate), int(parallel.optimizer.iterations)
    print(*sys.argv[1:], *parallel.devices, f"{rate:.3f}", steps)
    try:
        multi_gpu_model(model, gpus=3)
    except ValueError as error:
        print(error)

if __name__ == "__main__":
    main()
"""


def test_a_script_that_imports_the_model_late_starts_again(tmp_path: Path) -> None:
    (tmp_path / "late.py").write_text(LATE)
    (tmp_path / "local_module.py").write_text("WIDTH = 4")

    done = ran_on_stand_ins("late.py", "--words", "of its own", folder=tmp_path)

    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("late.py imports multi_gpu_model after TensorFlow has made") == 1
    assert done.stdout.splitlines() == [
        "--words of its own GPU:0 GPU:1 0.001 2",
        "gpus=3, and TensorFlow sees 2: GPU:0, GPU:1; TensorFlow does not list the stand-ins of "
        "$GPUMON_STAND_IN_GPUS as GPUs: leave gpus out",
    ]


def ran_on_stand_ins(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environ = {
        "KERAS_BACKEND": "tensorflow",
        "GPUMON_STAND_IN_GPUS": "2",
        "GPUMON_RUNTIME_DIR": str(folder),
        "CUDA_VISIBLE_DEVICES": "",
    }
    return ran(sys.executable, *arguments, cwd=folder, environ=environ, timeout_s=120)
