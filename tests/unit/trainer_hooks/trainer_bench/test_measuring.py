"""Why several GPUs are faster than the sum of each alone, and the progress bar."""

from __future__ import annotations

import io

import pytest

from tests.command_line import Terminal
from trainer_hooks.trainer_bench.measuring import Measured, progress_bar, why_above_alone


def run(*batches: int, speed: float, busy_part: float | None = None) -> Measured:
    """A hundred steps."""
    samples = 100 * sum(batches)
    seconds = samples / speed
    busy = None if busy_part is None else (busy_part * seconds,) * len(batches)
    gpus = tuple(f"GPU:{at}" for at in range(len(batches)))
    return Measured(gpus, batches, samples, seconds, 100, busy)


@pytest.mark.parametrize(
    ("together", "alone", "texts"),
    [
        (run(64, 64, speed=199), [run(64, speed=100)] * 2, None),
        (run(64, 64, speed=200), [run(64, speed=100)] * 2, None),
        (
            run(64, 64, speed=210, busy_part=0.9),
            [run(64, speed=100, busy_part=0.5), run(32, speed=100, busy_part=0.5)],
            ("5.0% faster", "larger parts", ": GPU:1 had 32 ", " has 64 here"),
        ),
        (
            run(100, 100, speed=2100, busy_part=0.95),
            [run(100, speed=1000, busy_part=0.9)] * 2,  # steps of 100 ms
            ("5.0% faster", "takes 4.8 ms", "to 10.0 ms"),
        ),
        (run(64, 64, speed=202), [run(64, speed=100)] * 2, ("1.0% faster", "(--seconds)")),
    ],
    ids=["nothing below the sum", "nothing at the sum", "larger parts, before any other cause",
         "a cheaper update", "noise where busy times are unknown"],
)  # fmt: skip
def test_a_speed_above_the_sum_is_explained_by(
    together: Measured, alone: list[Measured], texts: tuple[str, ...] | None
) -> None:
    why = why_above_alone(together, alone)

    assert (why is None) is (texts is None)
    assert [text for text in texts or () if text not in (why or "")] == []


@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
def test_a_progress_bar_is_shown_on_a_terminal_only_on_stderr(
    kind: type[io.StringIO], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stderr = kind()
    monkeypatch.setattr("sys.stderr", stderr)

    with progress_bar("GPU:0 [64]", 10.0) as advance:
        advance(5.0)

    assert ("GPU:0 [64]" in stderr.getvalue()) is stderr.isatty()
    assert stderr.isatty() or stderr.getvalue() == ""
    assert capsys.readouterr().out == ""
