"""Two reports beside each other: what was lost, to what, what was gained."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from gpumon.core.clock import NS_PER_S
from gpumon.core.diagnosis.messages import WORD_OF_CAUSE, WORD_OF_FIRST_WAIT
from gpumon.core.diagnosis.run_pace import RunPair, RunPairs, pairs_of
from gpumon.core.diagnosis.speedup import WAVERS, compute_speedup, promise_was_kept
from gpumon.core.diagnosis.unlike import Unlikeness, unlike
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

_MOST_RUNS: Final = 8
"""With more trainings than that, the table shows the first of them."""
_LONG_STEP_NS: Final = 10 * NS_PER_S


def side_by_side(
    before: Report,
    after: Report,
    style: TextStyle,
    *,
    titles: tuple[str, str] = ("before", "after"),
) -> str:
    """Both reports as one table, with the gain and whether the advice kept its promise.

    In what they are not alike stands first.

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
    said = [line for one in found for line in wrapped(one.text)]
    lines = [*said, "", *lines] if said else lines
    return style.plain("\n".join(line.rstrip() for line in lines)) + "\n"


def _gain(before: Report, after: Report, pairs: RunPairs, found: Sequence[Unlikeness]) -> list[str]:
    freed_ns = before.lost_ns - after.lost_ns
    shares = _lost_ratio(before) or 0.0, _lost_ratio(after) or 0.0
    # A short run loses few seconds, and may lose a greater share all the same.
    is_gain = freed_ns > 0 and shares[1] < shares[0]
    won = f"{in_all(freed_ns, before.gpus)} won back." if is_gain else "nothing won back."
    if any(one.of_work or one.of_length for one in found):
        won = "a smaller share." if shares[1] < shares[0] else "no smaller share."
    lines = wrapped(
        f"Lost {in_percent(_lost_ratio(before))} of the time in use before, "
        f"{in_percent(_lost_ratio(after))} after: {won}",
        first=f"{'Gained:':<9}",
    )
    return [*lines, *wrapped(_speed(before, after, pairs, found), first=f"{'Speed:':<9}")]


def _speed(before: Report, after: Report, pairs: RunPairs, found: Sequence[Unlikeness]) -> str:
    measured = pairs.speedup
    if measured is None:
        if pairs.both or not (pairs.only_before and pairs.only_after):
            return (
                "steps were not counted in both: it cannot be told. A tagged training counts them."
            )
        return "no training of one name is in both: name them alike with GPUMON_RUN, to compare."
    if any(one.of_work for one in found):
        return "not compared, as the first lines say; the table has the time of a step in each."
    in_samples = all(pair.has_unlike_steps for pair in pairs.both)
    measure = "samples a second" if in_samples else "wall time a step"
    text = f"{measured:.2f} times as fast, in {measure}"
    text += f", over the {len(pairs.both)} trainings in both." if len(pairs.both) > 1 else "."
    own = compute_speedup(before, after) or 1.0
    if abs(own - 1.0) >= 0.01:
        measured /= own
        text += (
            f" The compute itself was {own:.2f} times as fast: less waiting gave {measured:.2f}."
        )
    # What other trainings did as well, no advice can be held to.
    advice = main_advice(before) if pairs.is_whole else None
    bound = advice.speedup_upper_bound if advice is not None else None
    # To train for longer, or to give a GPU back, promises no speed.
    if advice is not None and advice.lost_seconds > 0.0 and bound is not None:
        is_first = advice.cause == FIRST_INPUT_WAIT
        word = WORD_OF_FIRST_WAIT if is_first else WORD_OF_CAUSE[IdleCause(advice.cause)]
        text += f" The advice on {word} said: "
        if advice.may_be_more:
            return f"{text}{bound:.2f} times, or more."
        text += f"at most {bound:.2f} times; {_what_became_of(bound, measured)}."
    return text


def _what_became_of(bound: float, measured: float) -> str:
    if not promise_was_kept(bound, measured):
        return "that did not hold"
    if measured < WAVERS < bound:
        return "nothing of it was gained, as if it had not been followed"
    return "that held"


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
    """How fast each training went, and which of them is in one report alone."""
    counted_pairs = [pair for pair in pairs.both if pair.before.steps or pair.after.steps]
    lines: list[str] = []
    if len(counted_pairs) == 1:
        lines += _rows_of_one(counted_pairs[0])
    elif counted_pairs:
        lines.append("wall time a step")
        lines += map(_steps_of_many, counted_pairs[:_MOST_RUNS])
        resized = [pair for pair in counted_pairs[:_MOST_RUNS] if pair.has_unlike_steps]
        lines += ["samples a second", *map(_samples_of_many, resized)] if resized else []
        if len(counted_pairs) > _MOST_RUNS:
            lines.append(f"  and {len(counted_pairs) - _MOST_RUNS} more: --json has all of them")
    for title, alone in (("before", pairs.only_before), ("after", pairs.only_after)):
        if alone:
            names = listed([label_text(pace.run) for pace in alone])
            lines += wrapped(f"Only {title}: {names}.")
    return lines


def _rows_of_one(pair: RunPair) -> Iterator[str]:
    both = pair.before, pair.after
    yield _row("wall time a step", *(_step_cell(pace.step_wall_ns) for pace in both))
    if all(pace.step_ns for pace in both):
        yield _row("  median step", *(_step_cell(pace.step_ns) for pace in both))
    rates = [pace.samples_per_second for pace in both]
    if all(rates):
        yield _row("  samples a second", *(f"{rate:,.1f}" for rate in rates))


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
