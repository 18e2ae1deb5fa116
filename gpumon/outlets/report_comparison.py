"""Two reports beside each other: what was lost, to what, what was gained."""

from __future__ import annotations

from collections.abc import Sequence

from gpumon.core.advice import WORD_OF_CAUSE
from gpumon.core.figures import in_percent, in_seconds
from gpumon.core.phase import CAUSES, IdleCause
from gpumon.core.report import BESIDE_CAUSES, Report
from gpumon.core.units import seconds
from gpumon.outlets.report_headline import verdict_line
from gpumon.outlets.report_next import main_advice
from gpumon.outlets.text_style import TextStyle, wrapped

_WAVERS = 1.02
_OUT_OF_USE = frozenset({IdleCause.NOT_IN_USE, IdleCause.START_UP})


def side_by_side(
    before: Report,
    after: Report,
    style: TextStyle,
    *,
    titles: tuple[str, str] = ("before", "after"),
) -> str:
    """Both reports as one table, with the gain and whether the advice kept its promise.

    Args:
        before: The report whose advice was followed.
        after: The report of the same work after that.
        style: What the terminal can show.
        titles: Headings of the two columns.

    Returns:
        Text of 80 columns with a line break at its end.
    """
    marked = _main_cause(before)
    lines = [f"{'':<30}{titles[0]:>24.24}{titles[1]:>24.24}"]
    lines.append(_row("in use", _cell_ns(_in_use_ns(before)), _cell_ns(_in_use_ns(after))))
    lines.append(_shares("busy", before, after, [_busy_ns(before), _busy_ns(after)]))
    lines.append(_shares("lost", before, after, [_lost_ns(before), _lost_ns(after)]))
    for cause in CAUSES:
        amounts = [_idle_ns(before, cause), _idle_ns(after, cause)]
        if cause in _OUT_OF_USE or not any(amounts):
            continue
        row = _shares(f"  {WORD_OF_CAUSE[cause]}", before, after, amounts)
        lines.append(style.painted(f"{row} {style.arrow}", "bold") if cause is marked else row)
    steps = [steps_per_second(before), steps_per_second(after)]
    if any(steps):
        lines.append(_row("wall time a step", *(_step_cell(pace) for pace in steps)))
    lines += ["", *_verdicts(before, after, titles), *_gain(before, after)]
    return style.plain("\n".join(line.rstrip() for line in lines)) + "\n"


def steps_per_second(report: Report) -> float | None:
    """Training steps a second of wall time, all runs together; ``None`` without a tagged step."""
    runs = report.observed_runs
    paces = [run.steps / seconds(run.wall_ns) for run in runs if run.steps and run.wall_ns]
    return sum(paces) if paces else None


def speedup(before: Report, after: Report) -> float | None:
    """How many times as fast the work became; ``None`` where steps were not counted in both."""
    slow, fast = steps_per_second(before), steps_per_second(after)
    return fast / slow if slow and fast else None


def compute_speedup(before: Report, after: Report) -> float | None:
    """By how much the compute of a step itself became faster: no advice on waiting did that."""
    slow_steps, fast_steps = (
        sum(run.steps for run in one.observed_runs) for one in (before, after)
    )
    slow_ns, fast_ns = _busy_ns(before), _busy_ns(after)
    if not (slow_steps and fast_steps and slow_ns and fast_ns):
        return None
    return (slow_ns / slow_steps) / (fast_ns / fast_steps)


def promise_was_kept(bound: float, measured: float) -> bool:
    """Whether a gain stayed within its upper bound, give or take what a measurement wavers."""
    return measured <= bound * _WAVERS


def _gain(before: Report, after: Report) -> list[str]:
    freed_ns = _lost_ns(before) - _lost_ns(after)
    shares = _lost_ratio(before) or 0.0, _lost_ratio(after) or 0.0
    # A short run loses few seconds, and may lose a greater share all the same.
    is_gain = freed_ns > 0 and shares[1] < shares[0]
    lines = wrapped(
        f"Lost {in_percent(_lost_ratio(before))} of the time in use before, "
        f"{in_percent(_lost_ratio(after))} after: "
        + (f"{in_seconds(freed_ns)} won back." if is_gain else "nothing won back."),
        first=f"{'Gained:':<9}",
    )
    measured = speedup(before, after)
    if measured is None:
        sentence = "Speed:   steps were not counted in both: it cannot be told."
        return [*lines, sentence]
    text = f"{measured:.2f} times as fast, in wall time a step."
    own = compute_speedup(before, after) or 1.0
    if abs(own - 1.0) >= 0.01:
        measured /= own
        text += (
            f" The compute itself was {own:.2f} times as fast: less waiting gave {measured:.2f}."
        )
    advice = main_advice(before)
    bound = advice.speedup_upper_bound if advice is not None else None
    # To train for longer, or to give a GPU back, promises no speed.
    if advice is not None and advice.lost_seconds > 0.0 and bound is not None:
        text += f" The advice on {WORD_OF_CAUSE[IdleCause(advice.cause)]} said: "
        text += f"at most {bound:.2f} times; {_what_became_of(bound, measured)}."
    return [*lines, *wrapped(text, first=f"{'Speed:':<9}")]


def _what_became_of(bound: float, measured: float) -> str:
    if not promise_was_kept(bound, measured):
        return "that did not hold"
    if measured < _WAVERS < bound:
        return "nothing of it was gained, as if it had not been followed"
    return "that held"


def _verdicts(before: Report, after: Report, titles: tuple[str, str]) -> list[str]:
    lines: list[str] = []
    for title, report in zip(titles, (before, after), strict=True):
        sentence = verdict_line(report)
        lines += wrapped(sentence[:1].upper() + sentence[1:], first=f"{title[:24] + ':':<9} ")
    return lines


def _main_cause(report: Report) -> IdleCause | None:
    advice = main_advice(report)
    is_loss = advice is not None and advice.cause not in BESIDE_CAUSES
    return IdleCause(advice.cause) if advice is not None and is_loss else None


def _row(title: str, *cells: str) -> str:
    return f"{title:<30.30}" + "".join(f"{cell:>24}" for cell in cells)


def _shares(title: str, before: Report, after: Report, amounts_ns: Sequence[int]) -> str:
    wholes = (_in_use_ns(before), _in_use_ns(after))
    cells = [
        f"{_cell_ns(amount_ns)}{100 * amount_ns / whole_ns if whole_ns else 0.0:>7.1f} %"
        for amount_ns, whole_ns in zip(amounts_ns, wholes, strict=True)
    ]
    return _row(title, *cells)


def _cell_ns(amount_ns: int) -> str:
    return in_seconds(amount_ns)


def _step_cell(pace: float | None) -> str:
    return "not counted" if not pace else f"{1_000 / pace:,.1f} ms"


def _in_use_ns(report: Report) -> int:
    return sum(gpu.totals.in_use_ns for gpu in report.gpus)


def _busy_ns(report: Report) -> int:
    return sum(gpu.totals.in_use_busy_ns for gpu in report.gpus)


def _lost_ns(report: Report) -> int:
    return sum(gpu.totals.lost_ns for gpu in report.gpus)


def _lost_ratio(report: Report) -> float | None:
    in_use_ns = _in_use_ns(report)
    return _lost_ns(report) / in_use_ns if in_use_ns else None


def _idle_ns(report: Report, cause: IdleCause) -> int:
    return sum(gpu.totals.idle_ns.get(cause, 0) for gpu in report.gpus)
