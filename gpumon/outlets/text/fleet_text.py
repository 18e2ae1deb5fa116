"""A report on many machines for people: what was lost and what to do, then who lost it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from math import ceil
from typing import Final

from gpumon.core.clock import nanoseconds
from gpumon.core.diagnosis.messages import WORD_OF_CAUSE, WORD_OF_REASON
from gpumon.core.fleet.fleet_report import (
    HOSTS,
    MIN_COVERAGE,
    RUNS,
    FewRuns,
    FleetReport,
    Loser,
    Ranking,
    cost,
    energy_cost,
    kilowatt_hours,
)
from gpumon.core.phase import IdleCause, InputWaitReason
from gpumon.core.settings.detector import DEFAULT_SETTINGS
from gpumon.core.wording import (
    capital,
    counted,
    in_gpu_time,
    in_percent,
    in_unit_of,
    is_next_to_nothing,
    label_text,
    listed,
    time_of_day,
)
from gpumon.outlets.text.style import WIDTH, TextStyle, wrapped

_TO_CAUSE: Final[Mapping[str, str]] = {
    IdleCause.INPUT_WAIT: "to input stalls",
    IdleCause.CHECKPOINT: "to checkpoints",
    IdleCause.VALIDATION: "to validation",
    IdleCause.CALLBACKS: "to callbacks",
    IdleCause.HOST_TO_DEVICE: "to copies to the GPU",
    IdleCause.WITHIN_STEP: "to pauses within the step",
    IdleCause.IMBALANCE: "to waits for slower GPUs",
    IdleCause.COMPILE: "to compilation",
    IdleCause.BETWEEN_EPOCHS: "to pauses between epochs",
    IdleCause.START_UP: "to start-up",
}
_COLOURED: Final = ("Verdict", "Coverage", "Partial")
_BAR: Final = 20
_MAX_REASONS: Final = 3
_WHOLE_MONEY: Final = 1_000
"""From here on, amounts have no decimals."""
_HOUR_S: Final = 3_600.0
_LEAST_SHOWN: Final = 0.001
"""Of the time that was observed."""
_MINUTES_OF_DAY: Final = 1_440


def render_fleet_report(report: FleetReport, style: TextStyle) -> str:
    """The complete report as text, 80 columns wide, with a line break at its end."""
    severe = (report.lost_ratio or 0.0) >= DEFAULT_SETTINGS.lost_share
    colour = "yellow" if severe or report.has_low_coverage else "green"
    head = [
        line
        for label, text in headline(report)
        for line in (
            [style.painted(line, colour) for line in _labelled(label, text)]
            if label in _COLOURED
            else _labelled(label, text)
        )
    ]
    blocks = ["\n".join(head), "\n".join(wrapped(scope_sentence(report)))]
    blocks.append(_time_table(report, style))
    blocks += [_ranking_table(ranking, report) for ranking in report.rankings]
    blocks.append("lost: idle while in use; share: of the time in use" if report.rankings else "")
    blocks.append(
        "\n".join(line for note in report.notes for line in wrapped(note, first="Note: "))
    )
    return style.plain("\n\n".join(filter(None, blocks))) + "\n"


# -- sentences ----------------------------------------------------------------------


def headline(report: FleetReport) -> Iterator[tuple[str, str]]:
    """What to know first: labels and sentences."""
    yield "Verdict", verdict_sentence(report)
    if report.has_low_coverage:
        yield "Coverage", coverage_sentence(report)
    if report.warnings:
        warnings = "; ".join(report.warnings)
        yield "Partial", f"The figures may be too low, because the server warns: {warnings}."
    if report.lost_seconds:
        yield "Cost", cost_sentence(report)
    why = reason_sentence(report)
    if why:
        yield "Why", why
    yield "Next", next_sentence(report)


def verdict_sentence(report: FleetReport) -> str:
    """The sentence for a manager: each part only where the figures show it."""
    if report.lost_ratio is None:
        return f"No GPU was in use, in {_hours(report.observed_seconds, report)} observed."
    lost = (
        f"{in_percent(report.lost_ratio, DEFAULT_SETTINGS.lost_share)} of "
        f"{_hours(report.in_use_seconds, report)} in use were lost"
    )
    if not report.lost_seconds:
        return f"{lost}."
    return f"{lost}; {'; '.join(_parts(report))}."


def _parts(report: FleetReport) -> Iterator[str]:
    """What the loss went to, the largest part first."""
    lost_s, causes = report.lost_seconds, report.known_causes
    known_s = report.lost_by_cause[causes[0]] if causes else 0.0
    if report.unknown_seconds > known_s:
        unknown = in_percent(report.unknown_seconds / lost_s)
        yield f"the cause of {f'{unknown} of that' if causes else 'all of it'} is unknown"
    few = {one.cause: one for one in report.few_runs}
    for place, cause in enumerate(causes):
        that = "" if place else " of that"
        if cause in few:
            yield f"{in_percent(few[cause].lost_seconds / lost_s)}{that} {_to_runs(few[cause])}"
        elif place == 0:
            yield f"{in_percent(known_s / lost_s)} of that {to_cause(cause)}"


def _to_runs(few: FewRuns) -> str:
    whose = counted(len(few.runs), "run", "runs")
    if few.users:
        whose += f" of {counted(len(few.users), 'user', 'users')}"
    return f"{to_cause(few.cause)} of {whose}"


def to_cause(cause: str) -> str:
    """A cause, as it reads after "lost"."""
    return _TO_CAUSE.get(cause) or f"to {label_text(cause, 40)}"


def coverage_sentence(report: FleetReport) -> str:
    """How much was not observed, and why as far as that is known."""
    sentences = [f"{_observed(report)}; what was lost in the rest is unknown."]
    if report.tile_seconds is None or report.first_tile_at is None:
        sentences.append(_unscraped(report) or "The counters begin later, or scrapes are missing.")
        return " ".join(sentences)
    is_hourly = report.tile_seconds == _HOUR_S
    tile = "hour" if is_hourly else f"{report.tile_seconds / 60:.0f} minutes"
    tiles = "hours" if is_hourly else f"spans of {tile}"
    before = max(0, ceil((report.first_tile_at - report.started_at) / report.tile_seconds))
    if before:
        sentences.append(
            f"The first figures are of the {tile} until "
            f"{moment(report.first_tile_at + report.tile_seconds)}: before that, the rules were "
            "not loaded, or nothing was scraped."
        )
    gaps = report.all_tiles - report.known_tiles - before
    missing = []
    if gaps > 0:
        missing.append(f"{gaps:,} of {report.all_tiles:,} {tiles} have no figures.")
    # Of the first one, only a part may have been observed.
    whole_tiles = report.known_tiles - (before > 0)
    known_s = (report.expected_seconds or 0.0) * whole_tiles / report.all_tiles
    is_partial = report.observed_seconds < MIN_COVERAGE * known_s
    if gaps > 0 or is_partial:
        missing.append(
            _unscraped(report) or "Evaluations or scrapes are missing, or began in that time."
        )
    return " ".join([*sentences, *missing])


def _observed(report: FleetReport) -> str:
    """How much was observed, of a low coverage."""
    if (report.coverage_ratio or 0.0) < _LEAST_SHOWN:
        return f"Less than {in_percent(_LEAST_SHOWN)} of the time was observed"
    return f"Only {in_percent(report.coverage_ratio, MIN_COVERAGE)} of the time was observed"


def _unscraped(report: FleetReport) -> str:
    """Who was down, if the server shows it."""
    if not report.unscraped_daemons:
        return ""
    minutes = (report.ended_at - report.started_at) / 60
    span = "1d" if minutes >= _MINUTES_OF_DAY else f"{minutes:.0f}m"
    daemons = counted(report.unscraped_daemons, "daemon", "daemons")
    return f"{daemons} could not be scraped at times (`min_over_time(up[{span}]) == 0`)."


def cost_sentence(report: FleetReport) -> str:
    """What the loss cost."""
    prices = report.prices
    lost = _hours(report.lost_seconds, report)
    price = cost(report.lost_seconds, prices.gpu_hour)
    if price is not None and prices.gpu_hour is not None:
        lost += f", {in_money(price)} at {in_money(prices.gpu_hour)} per GPU-hour"
    sentences = [f"{lost}."]
    joules = report.energy_by_use.get("lost")
    if joules is not None:
        energy = f"The GPUs used {in_energy(joules)} in that time"
        energy_price = energy_cost(joules, prices.kwh)
        if energy_price is not None and prices.kwh is not None:
            energy += f", {in_money(energy_price)} at {in_money(prices.kwh)} per kWh"
        sentences.append(f"{energy}.")
    unused_s = report.not_in_use_seconds or 0.0
    if not is_next_to_nothing(nanoseconds(unused_s), nanoseconds(report.observed_seconds)):
        price = cost(unused_s, prices.gpu_hour)
        worth = "" if price is None else f" ({in_money(price)})"
        sentences.append(f"Another {_hours(unused_s, report)}{worth} were not in use.")
    return " ".join(sentences)


def reason_sentence(report: FleetReport) -> str:
    """Why input was late; empty where that is unknown or did not matter."""
    waited = sum(report.input_wait_by_reason.values())
    unknown = InputWaitReason.UNKNOWN.value
    known = [(name, part) for name, part in report.input_wait_by_reason.items() if name != unknown]
    if not known or IdleCause.INPUT_WAIT.value not in report.known_causes[:2]:
        return ""
    parts = [
        f"{WORD_OF_REASON.get(name, label_text(name, 40))} ({in_percent(part / waited)})"
        for name, part in known[:_MAX_REASONS]
    ]
    if report.known_causes[0] == IdleCause.INPUT_WAIT.value:
        return f"Input was late due to {listed(parts)}."
    share = in_percent(report.lost_by_cause[IdleCause.INPUT_WAIT.value] / report.lost_seconds)
    return f"The waits for input, {share} of the loss, were due to {listed(parts)}."


def next_sentence(report: FleetReport) -> str:
    """What to do first."""
    if report.lost_ratio is None:
        return "Look for the jobs that should have used these GPUs."
    if report.lost_ratio < DEFAULT_SETTINGS.lost_share:
        return f"Nothing: less than {100 * DEFAULT_SETTINGS.lost_share:g} % was lost."
    causes = report.known_causes
    if not causes or report.unknown_seconds > report.lost_by_cause[causes[0]]:
        return _about_untagged_runs(report)
    if report.few_runs:
        return _about_run(report.few_runs[0].runs[0], report)
    worst = [one for ranking in report.rankings for one in ranking.worst[:1]]
    named = [ranking.dimension for ranking in report.rankings if ranking.worst]
    if not worst:
        return "Run `gpumon report` on the hosts: it names the reason and what to change first."
    if named[0] is RUNS:
        return _about_run(worst[0].name, report)
    name = label_text(worst[0].name, 60)
    return (
        f"Begin with the {named[0].name} {name}: `gpumon report` there names the reason and what "
        "to change first."
    )


def _about_untagged_runs(report: FleetReport) -> str:
    hosts = [
        one.name
        for ranking in report.rankings
        if ranking.dimension is HOSTS
        for one in ranking.worst
    ]
    where = f"on {label_text(hosts[0], 60)}" if hosts else "on the hosts"
    return (
        f"Run `gpumon why` {where}: it names the line of code that a GPU waits for, and `gpumon "
        "report` says what is suspected. Runs that are started by `gpumon run -- python train.py` "
        "report their causes from then on."
    )


def _about_run(run: str, report: FleetReport) -> str:
    found = [
        one
        for ranking in report.rankings
        if ranking.dimension is RUNS
        for one in ranking.worst
        if one.name == run
    ]
    hosts = found[0].hosts if found else ()
    users = found[0].users if found else ()
    whose = f" of {listed([label_text(user, 40) for user in users], 2)}" if users else ""
    where = label_text(hosts[0], 60) if hosts else "its host"
    return (
        f"Begin with the run {label_text(run, 60)}{whose}: on {where}, `gpumon report` names the "
        "reason and what to change first."
    )


def scope_sentence(report: FleetReport) -> str:
    """What the report is of."""
    span = _span(report.ended_at - report.started_at)
    things = [
        counted(count, one, many)
        for count, one, many in (
            (report.hosts, "host", "hosts"),
            (report.gpus, "GPU", "GPUs"),
        )
        if count is not None
    ]
    now = f" The fleet has {listed(things)} now." if things else ""
    coverage = ""
    if report.coverage_ratio is None:
        coverage = " How much of the time was observed is unknown."
    elif not report.has_low_coverage:
        coverage = f" {in_percent(report.coverage_ratio, MIN_COVERAGE)} of the time was observed."
    return (
        f"The {span} until {moment(report.ended_at)}, by {label_text(report.source, 200)}."
        f"{coverage}{now}"
    )


# -- tables -------------------------------------------------------------------------


def time_rows(report: FleetReport) -> list[tuple[str, float, str | None]]:
    """Where the observed time went: titles, seconds, and the cause where it was lost."""
    whole_ns = nanoseconds(report.observed_seconds)
    rows: list[tuple[str, float, str | None]] = [("busy", report.busy_seconds, None)]
    rows += [
        (f"lost, {word_of_cause(cause)}", lost, cause)
        for cause, lost in report.lost_by_cause.items()
    ]
    unused = report.not_in_use_seconds or 0.0
    rows.append(("not in use", unused, None))
    rest = report.observed_seconds - report.in_use_seconds - unused
    rows.append(("pending", max(0.0, rest), None))
    return [row for row in rows if not _is_shown_as_zero(row[1], whole_ns)]


def _is_shown_as_zero(amount_s: float, whole_ns: int) -> bool:
    amount_ns = nanoseconds(amount_s)
    figure = in_unit_of(whole_ns, amount_ns).split(" ")[0]
    return is_next_to_nothing(amount_ns, whole_ns) or not figure.strip("0.")


def word_of_cause(cause: str | None) -> str:
    """A cause as in all reports."""
    try:
        return WORD_OF_CAUSE[IdleCause(cause)]
    except ValueError:
        return label_text(cause or "-", 40)


def _time_table(report: FleetReport, style: TextStyle) -> str:
    whole_ns = nanoseconds(report.observed_seconds)
    lines = []
    for title, amount_s, _ in time_rows(report):
        ratio = amount_s / report.observed_seconds
        lines.append(
            f"  {title:<30.30}{in_unit_of(whole_ns, nanoseconds(amount_s)):>12}"
            f"{100 * ratio:>7.1f} %{_money_cell(amount_s, report)}  {style.bar(ratio, _BAR)}"
        )
    price = "" if report.prices.gpu_hour is None else f"{'price':>10}"
    head = f"{'Where the GPU time went:':<44}{'':>9}{price}"
    whole = f"  {'sum = observed':<30}{in_unit_of(whole_ns, whole_ns):>12}"
    return "\n".join(line.rstrip() for line in (head, *lines, whole))


def ranking_title(ranking: Ranking) -> str:
    """What a ranking shows."""
    many, shown = ranking.dimension.many, len(ranking.worst)
    if ranking.rest is None or ranking.rest.number is None:
        return f"The worst {many}"
    return f"The worst {shown} of {shown + ranking.rest.number:,} {many}"


def rest_rows(ranking: Ranking) -> list[tuple[str, float]]:
    """What a ranking does not name: titles and seconds lost."""
    rows = []
    rest = ranking.rest
    if rest is not None:
        count = "all" if rest.number is None else f"{rest.number:,}"
        rows.append((f"{count} others", rest.lost_seconds))
    if ranking.unnamed_lost_seconds is not None and ranking.dimension.none:
        rows.append((ranking.dimension.none, ranking.unnamed_lost_seconds))
    return rows


def loser_name(loser: Loser) -> str:
    """Its name, and whose run it is."""
    name = label_text(loser.name, 100)
    users = listed([label_text(user, 40) for user in loser.users], 2)
    return f"{name} ({users})" if users else name


def _ranking_table(ranking: Ranking, report: FleetReport) -> str:
    has_price = report.prices.gpu_hour is not None
    width = 24 if has_price else 32
    whole_ns = nanoseconds(report.observed_seconds)

    def row(name: str, lost_s: float) -> str:
        cut = name if len(name) <= width else f"{name[: width - 1]}\N{HORIZONTAL ELLIPSIS}"
        lost = in_unit_of(whole_ns, nanoseconds(lost_s))
        return f"  {cut:<{width}}{lost:>12}{_money_cell(lost_s, report)}"

    price = f"{'price':>10}" if has_price else ""
    title = f"{ranking_title(ranking)}:"
    lines = [f"{title:<{width + 2}}{'lost':>12}{price}{'share':>7}  mainly"]
    for loser in ranking.worst:
        share = "-" if loser.lost_ratio is None else in_percent(loser.lost_ratio)
        figures = f"{row(loser_name(loser), loser.lost_seconds)}{share:>7}"
        lines.append(f"{figures}  {word_of_cause(loser.main_cause)}"[:WIDTH])
    lines += [row(name, lost_s) for name, lost_s in rest_rows(ranking)]
    return "\n".join(line.rstrip() for line in lines)


def _money_cell(amount_s: float, report: FleetReport) -> str:
    price = price_cell(amount_s, report)
    return f"{price:>10}" if price else ""


def price_cell(amount_s: float, report: FleetReport) -> str:
    """A price for a column, whose cells have the same decimals; empty: it is unknown."""
    amount = cost(amount_s, report.prices.gpu_hour)
    whole = cost(report.observed_seconds, report.prices.gpu_hour)
    if amount is None or whole is None:
        return ""
    return f"{amount:,.0f}" if whole >= _WHOLE_MONEY else f"{amount:,.2f}"


# -- figures ------------------------------------------------------------------------


def in_money(amount: float) -> str:
    """An amount of money without a currency.

    >>> in_money(2.5), in_money(12_710.4)
    ('2.50', '12,710')
    """
    return f"{amount:,.2f}" if amount < _WHOLE_MONEY else f"{amount:,.0f}"


def in_energy(joules: float) -> str:
    """Energy in kWh.

    >>> in_energy(7_200_000.0), in_energy(3.6e9)
    ('2.0 kWh', '1,000 kWh')
    """
    kwh = kilowatt_hours(joules)
    return f"{kwh:,.1f} kWh" if kwh < 100 else f"{kwh:,.0f} kWh"


def moment(unix_s: float) -> str:
    """A date and time in UTC."""
    at = datetime.fromtimestamp(unix_s, timezone.utc)
    return time_of_day(at, datetime.fromtimestamp(0, timezone.utc))


def _hours(amount_s: float, report: FleetReport) -> str:
    """GPU time in the unit of the tables."""
    return in_gpu_time(nanoseconds(amount_s), nanoseconds(report.observed_seconds))


def _span(duration_s: float) -> str:
    for unit_s, unit in ((86_400, "days"), (3_600, "hours")):
        if duration_s >= 2 * unit_s and not duration_s % unit_s:
            return f"{duration_s / unit_s:,.0f} {unit}"
    return (
        f"{duration_s / 3_600:,.3g} hours"
        if duration_s > 7_200
        else f"{duration_s / 60:,.0f} minutes"
    )


def _labelled(label: str, text: str) -> list[str]:
    return wrapped(capital(text), first=f"{label + ':':<10}")
