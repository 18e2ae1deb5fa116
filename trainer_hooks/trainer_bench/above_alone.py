"""How several GPUs can be faster together than the sum of what each does alone."""

from __future__ import annotations

from collections.abc import Sequence

from trainer_hooks.trainer_bench.measuring import Measured


def speed_of(alone: Sequence[Measured]) -> float:
    """Samples a second, if each GPU did as well among the others as in its run alone."""
    return sum(measured.samples_a_second for measured in alone)


def why_above_alone(together: Measured, alone: Sequence[Measured]) -> str | None:
    """The sentence for it; ``None`` where they are no faster.

    Args:
        together: A run of some GPUs.
        alone: A run of each of them, in the same order.
    """
    above = together.samples_a_second / speed_of(alone) - 1
    if above <= 0:
        return None
    figure = f"{above:.1%} above what they did alone"
    larger = [
        f"{gpu} had {before.global_batch} samples a step alone and has {samples} here"
        for gpu, samples, before in zip(together.gpus, together.batches, alone, strict=True)
        if samples > before.global_batch
    ]
    if larger:
        return f"{figure}, because larger parts are worked off faster: {', '.join(larger)}"
    beside_ms, alone_ms = _beside_ms(together), [_beside_ms(measured) for measured in alone]
    known_ms = [each for each in alone_ms if each is not None]
    if beside_ms is not None and known_ms and beside_ms < max(known_ms):
        return (
            f"{figure}: in each step no GPU is at its samples for {beside_ms:.1f} ms (the update "
            f"of the weights), where one alone needs up to {max(known_ms):.1f} ms for it"
        )
    return f"{figure}, which is by how much runs differ: longer ones (--seconds) tell"


def _beside_ms(measured: Measured) -> float | None:
    """Of a mean step, the time in which no GPU is busy."""
    if measured.busy_seconds is None or not measured.steps:
        return None
    return 1e3 * (measured.seconds - max(measured.busy_seconds)) / measured.steps
