"""`gpumon run` with real frameworks: the right phases, one ring, and the same results."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpumon.core.ring_format.events import RingReading
from tests.needs import in_ci_on_jax, in_make_truth
from tests.programs import ROOT, ran
from tests.training_processes import close_readers, read, reader_of

RUN = (sys.executable, "-m", "gpumon", "run", "--")
BACKENDS = ("jax", "tensorflow", "torch")


def on(backend: str, *marks: pytest.MarkDecorator) -> Any:
    return pytest.param(backend, marks=[getattr(pytest.mark, f"keras_{backend}"), *marks])


KERAS = """
import sys, keras, numpy as np
keras.utils.set_random_seed(1)
inputs = keras.Input((4,))
model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(8)(inputs)))
model.compile(loss="mse", optimizer="sgd", jit_compile=False)
x = np.random.rand(64, 4).astype("float32")
y = x.sum(1, keepdims=True)
class Batches(keras.utils.PyDataset):
    def __len__(self): return 8
    def __getitem__(self, index): return x[8 * index:][:8], y[8 * index:][:8]
callbacks = []
if "tagger" in sys.argv:
    from trainer_hooks import PhaseTagger
    callbacks = [PhaseTagger(logs=False)]
history = model.fit(Batches(), epochs=2, verbose=0, validation_data=(x, y), callbacks=callbacks)
print({name: [value.hex() for value in map(float, values)]
       for name, values in history.history.items()}, len(callbacks))
if "alone" in sys.argv:
    model.evaluate(x, y, verbose=0); model.predict(x, verbose=0)
print(model.get_weights()[0].tobytes().hex())
"""

ON_TORCH = """
import sys, torch
torch.manual_seed(1); torch.set_num_threads(1)
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 32
    def __getitem__(self, index):
        row = torch.arange(4.0) + index / 32
        return row, row.sum(0, keepdim=True)
def loader(**settings): return torch.utils.data.DataLoader(Rows(), 8, shuffle=True, **settings)
"""

LOOP = f"""{ON_TORCH}
def main():
    method = sys.argv[1]
    workers = {{}} if method == "alone" else {{"num_workers": 2, "multiprocessing_context": method}}
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters())
    batches = loader(**workers)
    for epoch in range(2):
        for rows, sums in batches:
            optimizer.zero_grad()
            loss = ((model(rows) - sums) ** 2).mean()
            loss.backward()
            optimizer.step()
            print(loss.item().hex())
        with torch.no_grad():
            print(sum(model(rows).sum().item() for rows, _ in loader()).hex())
if __name__ == "__main__":
    main()
"""

LIGHTNING = f"""{ON_TORCH}
import logging, warnings, lightning.pytorch as pl
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)
    def training_step(self, batch, number):
        loss = ((self.linear(batch[0]) - batch[1]) ** 2).mean()
        print(loss.item().hex())
        return loss
    def validation_step(self, batch, number):
        self.log("validated", self.linear(batch[0]).mean())
    def configure_optimizers(self): return torch.optim.Adam(self.parameters())
taggers = []
if "tagger" in sys.argv:
    from trainer_hooks.lightning import PhaseTagger
    taggers = [PhaseTagger()]
trainer = pl.Trainer(accelerator="cpu", max_epochs=2, logger=False, enable_progress_bar=False,
                     enable_model_summary=False, callbacks=taggers)
trainer.fit(Model(), loader(), loader())
print([type(callback).__name__ for callback in trainer.callbacks if callback not in taggers])
"""

HUGGING_FACE = f"""{ON_TORCH}
import transformers
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)
    def forward(self, rows, sums):
        out = self.linear(rows)
        return {{"loss": ((out - sums) ** 2).mean(), "out": out}}
class Named(Rows):
    def __getitem__(self, index):
        return dict(zip(("rows", "sums"), super().__getitem__(index)))
taggers = []
if "tagger" in sys.argv:
    from trainer_hooks.huggingface import PhaseTagger
    taggers = [PhaseTagger()]
arguments = transformers.TrainingArguments(
    "checkpoints", num_train_epochs=2, per_device_train_batch_size=8, report_to=[], use_cpu=True,
    disable_tqdm=True, save_strategy="no", eval_strategy="epoch", seed=1, label_names=["sums"],
    log_level="error")
trainer = transformers.Trainer(Net(), arguments, train_dataset=Named(), eval_dataset=Named(),
                               callbacks=taggers)
trainer.remove_callback(transformers.PrinterCallback)
trainer.train()
print([weight.tolist() for weight in trainer.model.parameters()])
print(trainer.evaluate()["eval_loss"].hex())
handler = trainer.callback_handler
print([type(callback).__name__ for callback in handler.callbacks if callback not in taggers])
"""


class Folder:
    """A folder for scripts, which are run without a daemon."""

    launcher: tuple[str, ...] = ()
    """Options of Python before the script."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._environ = {
            "GPUMON_RUNTIME_DIR": str(path / "rings"), "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }  # fmt: skip

    def run(
        self, text: str, *words: str, under: tuple[str, ...] = RUN, backend: str = "jax"
    ) -> subprocess.CompletedProcess[str]:
        script = self.path / "train.py"
        script.write_text(text)
        done = ran(
            *under, sys.executable, *self.launcher, script, *words,
            environ={**self._environ, "KERAS_BACKEND": backend}, cwd=self.path, timeout_s=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done

    def rings(self) -> list[RingReading]:
        found = read(reader_of(self.path / "rings")).rings
        return sorted(found, key=lambda ring: ring.facts.rank)

    def is_same(self, text: str, *words: str, backend: str = "jax") -> RingReading:
        """The only ring of the script, which prints the same as without gpumon."""
        bare = self.run(text, *words, under=(), backend=backend)
        assert self.rings() == []
        done = self.run(text, *words, backend=backend)

        assert done.stdout == bare.stdout
        (ring,) = self.rings()
        return ring


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    yield Folder(tmp_path)
    close_readers()


def phases(ring: RingReading) -> set[str]:
    return {phase.value for phase in ring.phase_ns}


class TestAModelOfKeras:
    @pytest.mark.parametrize("backend", [on(name, in_ci_on_jax) for name in BACKENDS])
    def test_is_tagged_and_learns_the_same(self, backend: str, folder: Folder) -> None:
        ring = folder.is_same(KERAS, "alone", backend=backend)

        assert ring.facts.framework == f"keras/{backend}"
        assert ring.steps == 16
        assert phases(ring) >= {"input_wait", "train_step", "validation", "predict"}

    @in_make_truth
    @pytest.mark.parametrize("backend", [on(name) for name in BACKENDS])
    def test_keeps_its_own_tagger(self, backend: str, folder: Folder) -> None:
        folder.run(KERAS, "tagger", backend=backend)

        assert [ring.steps for ring in folder.rings()] == [16]


@pytest.mark.keras_torch
class TestALoopOnTorch:
    @pytest.mark.parametrize(
        "workers", ["alone", *(pytest.param(w, marks=in_make_truth) for w in ("fork", "spawn"))]
    )
    def test_is_tagged_and_learns_the_same(self, workers: str, folder: Folder) -> None:
        ring = folder.is_same(LOOP, workers)

        assert (ring.facts.framework, ring.steps) == ("loop", 8)
        assert ring.facts.loader["kind"] == "DataLoader"
        assert str(ring.facts.loader["made_at"]).startswith("train.py:")
        assert phases(ring) >= {"start_up", "input_wait", "validation", "other"}

    def test_is_tagged_in_each_rank_of_torchrun(self, folder: Folder) -> None:
        folder.launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2")

        done = folder.run(LOOP, "fork")

        assert [(ring.facts.rank, ring.steps) for ring in folder.rings()] == [(0, 8), (1, 8)]
        assert "  train-r1: " in done.stderr


@pytest.mark.keras_torch
@pytest.mark.parametrize(
    ("script", "framework", "steps"),
    [
        pytest.param(LIGHTNING, "lightning", 8, id="Lightning", marks=in_make_truth),
        pytest.param(HUGGING_FACE, "huggingface", 8, id="Hugging Face"),
    ],
)
class TestATrainer:
    def test_is_tagged_and_learns_the_same(
        self, script: str, framework: str, steps: int, folder: Folder
    ) -> None:
        ring = folder.is_same(script)

        assert (ring.facts.framework, ring.steps) == (framework, steps)
        assert phases(ring) >= {"input_wait", "train_step", "validation"}

    @in_make_truth
    def test_keeps_its_own_tagger(
        self, script: str, framework: str, steps: int, folder: Folder
    ) -> None:
        folder.run(script, "tagger")

        assert [ring.steps for ring in folder.rings()] == [steps]
