"""Two reports side by side: what was lost, to what, and what was gained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.diagnosis.messages import WORD_OF_CAUSE, WORD_OF_FIRST_WAIT
from gpumon.core.diagnosis.report_differences import (
    RunPair,
    RunPairs,
    Unlikeness,
    compute_speedup,
    pairs_of,
    unlike,
)
from gpumon.core.phase import CAUSES, OUT_OF_USE, IdleCause
from gpumon.core.report.report import BESIDE_CAUSES, FIRST_INPUT_WAIT, Report, idle_in
from gpumon.core.wording import (
    capital,
    in_percent,
    in_time,
    in_unit_of,
    is_next_to_nothing,
    label_text,
    listed,
)
from gpumon.outlets.text.headline import verdict_line
from gpumon.outlets.text.report_lines import in_all, in_milliseconds, main_advice
from gpumon.outlets.text.style import TextStyle, wrapped

_WAVERS: Final = 1.02
"""Two measurements of the same work differ by as much."""
_MAX_RUNS: Final = 8
"""With more runs than that, the table shows the first of them."""
_LONG_STEP_NS: Final = 10 * NS_PER_S

_NOT_COUNTED: Final = "unknown, because steps were not counted in both. A tagged run counts them."
_RENAMED: Final = "no run has the same name in both: set GPUMON_RUN to compare them."
_NOT_COMPARED: Final = (
    "not compared, because of the differences above; the table has the step time of each."
)
_SPEED: Final = "{times} times as fast, in {measure}."
_SPEED_OF_MANY: Final = "{times} times as fast, in {measure}, over the {count} runs in both."
_COMPUTE: Final = "The compute itself was {own} times as fast: less waiting accounts for {rest}."
_PROMISE_KEPT: Final = (
    "The advice on {cause} predicted at most {bound} times as fast, and that held."
)
_PROMISE_EXCEEDED: Final = (
    "The advice on {cause} predicted at most {bound} times as fast, and that did not hold."
)
_PROMISE_UNUSED: Final = (
    "The advice on {cause} predicted at most {bound} times as fast; no improvement was measured."
)
_PROMISE_OF_MORE: Final = "The advice on {cause} predicted {bound} times as fast, or more."


def side_by_side(
    before: Report,
    after: Report,
    style: TextStyle,
    *,
    titles: tuple[str, str] = ("before", "after"),
) -> str:
    """Both reports as one table, with the gain and whether the advice kept its promise.

    Differences between the two come first.

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
    wholes = before.in_use_ns, after.in_use_ns
    lines.append(_row("in use", *map(in_unit_of, wholes, wholes)))
    lines.append(_shares("busy", before, after, [before.in_use_busy_ns, after.in_use_busy_ns]))
    lines.append(_shares("lost", before, after, [before.lost_ns, after.lost_ns]))
    for cause in CAUSES:
        amounts = [idle_in((cause,), report.gpus) for report in (before, after)]
        if cause in OUT_OF_USE or all(map(is_next_to_nothing, amounts, wholes)):
            continue
        row = _shares(f"  {WORD_OF_CAUSE[cause]}", before, after, amounts)
        lines.append(style.painted(f"{row} {style.arrow}", "bold") if cause is marked else row)
    pairs, found = pairs_of(before, after), unlike(before, after)
    lines += _pace_rows(pairs)
    lines += ["", *_verdicts(before, after, titles), *_gain(before, after, pairs, found)]
    differences = [line for difference in found for line in wrapped(difference.text)]
    lines = [*differences, "", *lines] if differences else lines
    return style.plain("\n".join(line.rstrip() for line in lines)) + "\n"


def _gain(before: Report, after: Report, pairs: RunPairs, found: Sequence[Unlikeness]) -> list[str]:
    freed_ns = before.lost_ns - after.lost_ns
    shares = _lost_ratio(before) or 0.0, _lost_ratio(after) or 0.0
    # A short run loses few seconds, and may lose a greater share all the same.
    is_gain = freed_ns > 0 and shares[1] < shares[0]
    won = f"{in_all(freed_ns, before.gpus)} won back." if is_gain else "no time was won back."
    if any(difference.of_work or difference.of_length for difference in found):
        won = "a smaller share." if shares[1] < shares[0] else "not a smaller share."
    lines = wrapped(
        f"Lost {in_percent(_lost_ratio(before))} of the time in use before, "
        f"{in_percent(_lost_ratio(after))} after: {won}",
        first=f"{'Change:':<9}",
    )
    return [*lines, *wrapped(_speed(before, after, pairs, found), first=f"{'Speed:':<9}")]


def _speed(before: Report, after: Report, pairs: RunPairs, found: Sequence[Unlikeness]) -> str:
    measured = pairs.speedup
    if measured is None:
        is_renamed = not pairs.both and pairs.only_before and pairs.only_after
        return _RENAMED if is_renamed else _NOT_COUNTED
    if any(difference.of_work for difference in found):
        return _NOT_COMPARED
    in_samples = all(pair.has_unlike_steps for pair in pairs.both)
    sentences = [
        (_SPEED if len(pairs.both) == 1 else _SPEED_OF_MANY).format(
            times=f"{measured:.2f}",
            measure="samples per second" if in_samples else "wall time per step",
            count=len(pairs.both),
        )
    ]
    own = compute_speedup(before, after) or 1.0
    if abs(own - 1.0) >= 0.01:
        measured /= own
        sentences.append(_COMPUTE.format(own=f"{own:.2f}", rest=f"{measured:.2f}"))
    # Advice is not compared with what other runs gained.
    advice = main_advice(before) if pairs.is_whole else None
    bound = None if advice is None else advice.speedup_upper_bound
    # To train for longer, or to release a GPU, promises no speed.
    if advice is not None and advice.lost_seconds > 0.0 and bound is not None:
        is_first = advice.cause == FIRST_INPUT_WAIT
        cause = WORD_OF_FIRST_WAIT if is_first else WORD_OF_CAUSE[IdleCause(advice.cause)]
        row = _PROMISE_KEPT if promise_was_kept(bound, measured) else _PROMISE_EXCEEDED
        if measured < _WAVERS < bound:
            row = _PROMISE_UNUSED
        row = _PROMISE_OF_MORE if advice.may_be_more else row
        sentences.append(row.format(cause=cause, bound=f"{bound:.2f}"))
    return " ".join(sentences)


def promise_was_kept(bound: float, measured: float) -> bool:
    """Whether a gain stayed within its upper bound, give or take what a measurement wavers."""
    return measured <= bound * _WAVERS


def _verdicts(before: Report, after: Report, titles: tuple[str, str]) -> list[str]:
    lines: list[str] = []
    for title, report in zip(titles, (before, after), strict=True):
        lines += wrapped(capital(verdict_line(report)), first=f"{title[:24] + ':':<9} ")
    return lines


def _main_cause(report: Report) -> IdleCause | None:
    advice = main_advice(report)
    is_loss = advice is not None and advice.cause not in BESIDE_CAUSES
    return IdleCause(advice.cause) if advice is not None and is_loss else None


def _row(title: str, *cells: str) -> str:
    return f"{title:<30.30}" + "".join(f"{cell:>24}" for cell in cells)


def _shares(title: str, before: Report, after: Report, amounts_ns: Sequence[int]) -> str:
    wholes = (before.in_use_ns, after.in_use_ns)
    cells = [
        f"{in_unit_of(whole_ns, ns)}{100 * ns / whole_ns if whole_ns else 0.0:>7.1f} %"
        for ns, whole_ns in zip(amounts_ns, wholes, strict=True)
    ]
    return _row(title, *cells)


def _pace_rows(pairs: RunPairs) -> list[str]:
    counted_pairs = [pair for pair in pairs.both if pair.before.steps or pair.after.steps]
    lines: list[str] = []
    if len(counted_pairs) == 1:
        lines += _rows_of_one(counted_pairs[0])
    elif counted_pairs:
        lines.append("wall time per step")
        lines += map(_steps_of_many, counted_pairs[:_MAX_RUNS])
        resized = [pair for pair in counted_pairs[:_MAX_RUNS] if pair.has_unlike_steps]
        lines += ["samples per second", *map(_samples_of_many, resized)] if resized else []
        if len(counted_pairs) > _MAX_RUNS:
            lines.append(f"  and {len(counted_pairs) - _MAX_RUNS} more: --json has all of them")
    for title, alone in (("before", pairs.only_before), ("after", pairs.only_after)):
        if alone:
            names = listed([label_text(pace.run) for pace in alone])
            lines += wrapped(f"Only {title}: {names}.")
    return lines


def _rows_of_one(pair: RunPair) -> Iterator[str]:
    both = pair.before, pair.after
    yield _row("wall time per step", *(_step_cell(pace.step_wall_ns) for pace in both))
    if all(pace.step_ns for pace in both):
        yield _row("  median step", *(_step_cell(pace.step_ns) for pace in both))
    rates = [pace.samples_per_second for pace in both]
    if all(rates):
        yield _row("  samples per second", *(f"{rate:,.1f}" for rate in rates))


def _steps_of_many(pair: RunPair) -> str:
    cells = [_step_cell(pace.step_wall_ns) for pace in (pair.before, pair.after)]
    # Steps of unlike size have a gain in samples alone.
    return _row_of_many(pair, cells, None if pair.has_unlike_steps else pair.speedup)


def _samples_of_many(pair: RunPair) -> str:
    rates = [pace.samples_per_second or 0.0 for pace in (pair.before, pair.after)]
    return _row_of_many(pair, [f"{rate:,.1f}" for rate in rates], pair.speedup)


def _row_of_many(pair: RunPair, cells: Sequence[str], gain: float | None) -> str:
    before, after = cells
    if gain:
        after += f" ({gain:.{2 if gain < 100 else 0}f} times)"
    return _row(f"  {label_text(pair.after.run, 28)}", before, after)


def _step_cell(step_ns: float | None) -> str:
    if not step_ns:
        return "not counted"
    return in_time(round(step_ns)) if step_ns >= _LONG_STEP_NS else in_milliseconds(step_ns)


def _lost_ratio(report: Report) -> float | None:
    return report.lost_ns / report.in_use_ns if report.in_use_ns else None
