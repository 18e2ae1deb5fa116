"""One call of the bench: what was asked for, what it measured, and where that is said."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpumon.errors import GpumonError
from trainer_hooks.trainer_bench.engine import Engine, GpuOutOfMemoryError
from trainer_hooks.trainer_bench.measuring import DEFAULT_GPU, Measured, measure
from trainer_hooks.trainer_bench.progress import Bar
from trainer_hooks.trainer_bench.svg_plot import Plot

LARGE_BATCH: Final = 512
SIMULATED: Final = "SIMULATED: no GPU is used, and no figure here is a real one's"

Json = dict[str, Any]


@dataclass(slots=True)
class Session:
    """Everything a mode needs.

    Attributes:
        engine: Trains.
        gpus: Named by the user, or by the mode; none for the default GPU.
        batches: As the user wrote them.
        seconds: Of each run.
        bar: Shows how far a run is.
        say: Prints a line for people; does nothing where JSON is asked for.
    """

    engine: Engine
    gpus: tuple[str, ...]
    batches: tuple[int, ...]
    seconds: float
    bar: Bar
    say: Callable[[str], None]
    notices: list[str] = field(default_factory=list)

    def measure(self, gpus: Sequence[str], batches: Sequence[int]) -> Measured:
        """One run.

        Raises:
            GpuOutOfMemoryError: A GPU does not hold its part.
        """
        return measure(self.engine, gpus, batches, seconds=self.seconds, bar=self.bar)

    def notice(self, sentence: str | None) -> None:
        """Say what a reader of the figures should know, if there is something; also in JSON."""
        if sentence is None:
            return
        self.notices.append(sentence)
        self.say(f"\nNotice: {sentence}")

    def notice_of(self, batch: int) -> None:
        """Say what a large global batch does to what is learnt."""
        if batch > LARGE_BATCH:
            self.notice(
                f"a global batch of {batch} is past {LARGE_BATCH}: faster, but it generalises "
                "worse unless the learning rate is scaled with the batch and warmed up "
                "(docs/multi-gpu.md)"
            )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a mode came to: fields for JSON, and a plot of it."""

    fields: Json
    plot: Plot


def fields_of(measured: Measured) -> Json:
    """A run for JSON; rates in samples a second, times in seconds."""
    each = zip(measured.gpus or (DEFAULT_GPU,), measured.batches, measured.of_each_gpu, strict=True)
    return {
        "gpus": [
            {"gpu": gpu, "batch": batch, "samples_per_second": round(speed, 2)}
            for gpu, batch, speed in each
        ],
        "global_batch": measured.global_batch,
        "samples": measured.samples,
        "seconds": round(measured.seconds, 6),
        "steps": measured.steps,
        "samples_per_second": round(measured.samples_a_second, 2),
        "busy_seconds": (
            None
            if measured.busy_seconds is None
            else [round(seconds, 6) for seconds in measured.busy_seconds]
        ),
    }


def out_of_memory(
    error: GpuOutOfMemoryError, gpus: Sequence[str], batches: Sequence[int]
) -> GpumonError:
    """The sentence for it."""
    if error.gpu is None:
        where = f"with {' + '.join(map(str, batches))} samples on {' '.join(gpus) or DEFAULT_GPU}"
    else:
        name = gpus[error.gpu] if gpus else DEFAULT_GPU
        where = f"on {name}, which does not hold {batches[error.gpu]} samples"
    return GpumonError(f"out of memory {where}; --find-batch tells what a GPU holds")
