"""What torch and the libraries around it wait for."""

from __future__ import annotations

import io
import tarfile
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import h5py
import torch
import webdataset
from safetensors.torch import save_file
from torch import distributed
from torch.utils.data import DataLoader, Dataset

from tests.stacks.programs.cycle import run_in_turn, turn

WEIGHTS = {"weights": torch.zeros(2_000_000)}
MODEL = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(30)])
OPTIMIZER = torch.optim.Adam(MODEL.parameters(), foreach=False)


def decode(sample: Any) -> Any:
    time.sleep(0.05)
    return sample


class Images(Dataset[int]):  # type: ignore[misc, unused-ignore]
    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, number: int) -> int:
        return int(decode(number))


def loader_without_workers() -> None:
    for _ in turn():
        next(ALONE)


def loader_with_workers() -> None:
    for _ in turn():
        next(WITH_WORKERS)


def web_dataset() -> None:
    for _ in turn():
        next(SHARDS)


def torch_save() -> None:
    for _ in turn():
        torch.save(WEIGHTS, FOLDER / "weights.pt")


def safetensors_save() -> None:
    for _ in turn():
        save_file(WEIGHTS, FOLDER / "weights.safetensors")


def h5py_write() -> None:
    for _ in turn():
        with h5py.File(FOLDER / "weights.h5", "w") as file:
            file["weights"] = WEIGHTS["weights"].numpy()


def backward() -> None:
    for _ in turn():
        MODEL(torch.zeros(64, 64)).sum().backward()


def optimizer() -> None:
    for _ in turn():
        OPTIMIZER.step()


def collective() -> None:
    for _ in turn():
        distributed.all_gather_object([None], b" " * 2_000_000)


def computes_beside_a_checkpoint() -> None:
    saving = threading.Thread(target=torch_save)
    saving.start()
    for _ in turn():
        sum(range(1_000))
    saving.join()


if __name__ == "__main__":
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        FOLDER = Path(name)
        with tarfile.open(FOLDER / "shard.tar", "w") as shard:
            for number in range(500):
                member = tarfile.TarInfo(f"{number:06}.txt")
                shard.addfile(member, io.BytesIO())
        ALONE = iter(DataLoader(Images()))
        WITH_WORKERS = iter(DataLoader(Images(), num_workers=2))
        shards = webdataset.WebDataset(str(FOLDER / "shard.tar"), shardshuffle=False)
        SHARDS = iter(shards.repeat().map(decode))
        distributed.init_process_group("gloo", f"file://{FOLDER}/peers", rank=0, world_size=1)
        run_in_turn(
            loader_without_workers, loader_with_workers, web_dataset, torch_save, safetensors_save,
            h5py_write, backward, optimizer, collective, computes_beside_a_checkpoint,
        )  # fmt: skip
