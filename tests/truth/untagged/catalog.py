"""The loops: how each is started, and what its GPU truly waits for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from gpumon.core.phase import IdleCause

PORT: Final = "PORT"
"""An argument: the number of a free port."""
SCRIPTS: Final = Path(__file__).parent / "scripts"


class UntaggedLoop(NamedTuple):
    """A training script without any tag.

    Attributes:
        script: Its file in ``scripts``.
        answers: What its GPU mostly waits for: the value of a cause, or the name of a function of
            the script. Any of them is right.
        arguments: Of the script.
        environment: ``torch`` is ``.venv-torch``; empty is ``.venv``.
        ranks: Its processes, each on a GPU of its own.
        beside: Another script, whose output it reads.
    """

    script: str
    answers: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    environment: str = ""
    ranks: int = 1
    beside: str = ""

    @property
    def causes(self) -> tuple[str, ...]:
        """The answers that are causes."""
        return tuple(one for one in self.answers if one in _CAUSES)


_CAUSES: Final = frozenset(cause.value for cause in IdleCause)

LOOPS: Final[Mapping[str, UntaggedLoop]] = {
    "DataLoader of torch, 0 workers": UntaggedLoop(
        "torch_loader.py", ("input_wait",), ("0", "10"), "torch"
    ),
    "DataLoader of torch, 4 workers": UntaggedLoop(
        "torch_loader.py", ("input_wait",), ("4", "24"), "torch"
    ),
    "PyDataset of Keras": UntaggedLoop("keras_dataset.py", ("input_wait",), (), "torch"),
    "tf.data": UntaggedLoop("tensorflow_data.py", ("input_wait",), (), "tensorflow"),
    "a plain generator": UntaggedLoop("plain_generator.py", ("read_shards",)),
    "an evaluation every 8 steps": UntaggedLoop("evaluation.py", ("evaluate",)),
    "a checkpoint every 6 steps": UntaggedLoop("checkpoint.py", ("checkpoint",), (), "torch"),
    "a collective of two ranks, one late": UntaggedLoop(
        "barrier.py", ("within_step", "imbalance"), (), "torch", ranks=2
    ),
    "metrics for a slow server": UntaggedLoop(
        "metrics.py", ("send_metrics",), (PORT,), beside="metrics_server.py"
    ),
    "torch.compile of changing shapes": UntaggedLoop("compiling.py", ("compile",), (), "torch"),
    "four threads and the GIL": UntaggedLoop("threads.py", ("input_wait",)),
    "a reader of another program": UntaggedLoop("subprocess_reader.py", ("read_frames",)),
}

INNOCENTS: Final[Mapping[str, UntaggedLoop]] = {
    "a server with a thread for each request": UntaggedLoop(
        "server.py", ("requests",), (PORT,), beside="client.py"
    ),
    "a server with a queue of requests": UntaggedLoop(
        "batching_server.py", ("requests",), (PORT,), beside="client.py"
    ),
    "a notebook": UntaggedLoop("notebook.py", ("thinking",), beside="typist.py"),
    "a worker that plays when its learner has weights": UntaggedLoop(
        "rollout_worker.py", ("weights",)
    ),
    "a learner whose actors play": UntaggedLoop("roll_outs.py", ("episodes",)),
}
"""They wait for something else than input."""
