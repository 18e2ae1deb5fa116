"""The examples that log to W&B, MLflow and TensorBoard, offline; what each of these stored."""

from __future__ import annotations

import json
import re
import struct
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.needs import in_make_truth, missing
from tests.programs import ran

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RATIO = "input_wait_ratio"
EPOCHS = 3
BLOCK_BYTES, HEADER_BYTES, FILE_HEADER_BYTES = 32_768, 7, 7
LAST_PARTS = (1, 4)


def logged_by(script: str, folder: Path, backend: str) -> str:
    """Run an example with all three loggers, in a folder of its own; what it prints."""
    for package in ("wandb", "mlflow", "tensorboard"):
        if find_spec(package) is None:
            missing(f"{package} is not installed")
    environ = {
        "DO_NOT_TRACK": "true",
        "GPUMON_RUNTIME_DIR": str(folder / "run"),
        "HOME": str(folder),
        "KERAS_BACKEND": backend,
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "MLFLOW_TRACKING_URI": (folder / "mlruns").as_uri(),
        "OMP_NUM_THREADS": "1",
        "WANDB_ERROR_REPORTING": "false",
        "WANDB_MODE": "offline",
    }
    loggers = ("--to", "tensorboard", "wandb", "mlflow")
    done = ran(
        sys.executable, EXAMPLES / script, *loggers, cwd=folder, environ=environ, timeout_s=240
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def in_mlflow(folder: Path) -> list[float]:
    (file,) = folder.glob(f"mlruns/*/*/metrics/{RATIO}")
    return [float(line.split()[1]) for line in file.read_text().splitlines()]


def in_wandb(folder: Path) -> list[float]:
    """The values in the file of the offline run, by whatever prefix W&B gives the name."""
    from wandb.proto import wandb_internal_pb2

    (file,) = folder.glob("wandb/offline-run-*/*.wandb")
    values = []
    for written in _records_of(file.read_bytes()):
        record: Any = wandb_internal_pb2.Record()
        record.ParseFromString(written)
        for item in record.history.item:
            name = item.key or "/".join(item.nested_key)
            if name.rpartition("/")[2] == RATIO:
                values.append(float(json.loads(item.value_json)))
    return values


def _records_of(raw: bytes) -> Iterator[bytes]:
    """The records of a log of LevelDB: each may be in several blocks."""
    at, record = FILE_HEADER_BYTES, b""
    while at + HEADER_BYTES <= len(raw):
        left = BLOCK_BYTES - at % BLOCK_BYTES
        if left < HEADER_BYTES:
            at += left
            continue
        _, length, kind = struct.unpack_from("<IHB", raw, at)
        at += HEADER_BYTES
        record += raw[at : at + length]
        at += length
        if kind in LAST_PARTS:
            yield record
            record = b""


def in_tensorboard(folder: Path) -> list[float]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.util.tensor_util import make_ndarray

    values: list[float] = []
    for file in folder.rglob("events.out.*"):
        events = EventAccumulator(str(file))
        events.Reload()
        tags = events.Tags()
        for tag in tags["scalars"]:
            if tag.endswith(RATIO):
                values += [event.value for event in events.Scalars(tag)]
        for tag in tags["tensors"]:
            if tag.endswith(RATIO):
                values += [float(make_ndarray(event.tensor_proto)) for event in events.Tensors(tag)]
    return values


def check_stored(folder: Path) -> list[float]:
    """All three have the same ratio of each epoch; these."""
    ratios = in_mlflow(folder)
    assert len(ratios) == EPOCHS
    assert all(0.0 < ratio <= 1.0 for ratio in ratios)
    assert in_wandb(folder) == pytest.approx(ratios)
    assert in_tensorboard(folder) == pytest.approx(ratios, rel=1e-6)
    return ratios


class TestTheWaitForInputIsInAllThreeLoggers:
    @pytest.mark.keras_tensorflow
    def test_of_keras(self, tmp_path: Path) -> None:
        printed = logged_by("logged_keras.py", tmp_path, "tensorflow")

        (history,) = re.findall(rf"^{RATIO}: (.*)", printed, re.MULTILINE)
        assert check_stored(tmp_path) == pytest.approx([*map(float, history.split())])

    @pytest.mark.keras_torch
    @in_make_truth
    @pytest.mark.parametrize("script", ["logged_lightning.py", "logged_trainer.py"])
    def test_of_torch(self, script: str, tmp_path: Path) -> None:
        logged_by(script, tmp_path, "torch")

        check_stored(tmp_path)
