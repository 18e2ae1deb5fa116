"""The dashboard of a fleet: what is down, what is lost, what it costs, and where to look first."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import stat, table, timeseries
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as model

from grafana import fleet_queries as queries
from grafana.parts import (
    CAUSE_COLOURS,
    CAUSE_WORDS,
    FLEET_UID,
    GPU_HOURS,
    GPUS,
    HOST_UID,
    LOSS_THRESHOLDS,
    MONEY,
    NOT_IN_USE,
    PRICE,
    REASON_COLOURS,
    REASON_WORDS,
    RUN_UID,
    THIRD,
    WIDE,
    Column,
    cells_in_words,
    choice,
    curves,
    field_property,
    figures,
    fixed,
    frame,
    instant,
    link_to,
    note,
    number,
    over_tiles,
    rows,
    stacked,
    thresholds,
    unit,
    with_all,
    worded,
)

_NO_TILES: Final = (
    "'No data': no recorded series; check that Prometheus loads prometheus/rules.yml, and that it "
    "scrapes the daemons."
)
_UNUSED: Final = "'not in use': GPUs were observed, and no job ran on them."


def hosts_down() -> stat.Panel:
    """Daemons that cannot be scraped."""
    return (
        figures("Hosts down", "none")
        .span(4)
        .description(
            "Daemons that Prometheus could not scrape at its last attempt; 0: all answer. A host "
            "that left the list of targets is in the table of alerts. 'No data': Prometheus has "
            "no target of a gpumon job."
        )
        .thresholds(thresholds((None, "green"), (1, "red")))
        .with_target(instant(queries.HOSTS_DOWN, "down", "A"))
    )


def trouble() -> stat.Panel:
    """GPUs for which an alert on hardware fires."""
    return (
        figures("GPUs missing or in trouble", "none")
        .span(4)
        .description(
            "GPUs with a firing alert: missing, without samples, XID or memory errors, or clocks "
            f"reduced by heat or the board; 0: none. The table below names them. {_NO_TILES}"
        )
        .thresholds(thresholds((None, "green"), (1, "red")))
        .with_target(instant(queries.GPUS_IN_TROUBLE, "in trouble", "A"))
    )


def size() -> stat.Panel:
    """Hosts and GPUs of the latest tile."""
    return (
        figures("Hosts and GPUs", "none")
        .span(4)
        .description(
            "Hosts that answered in the latest tile of time, and their GPUs. Hosts that are down "
            f"are counted beside this. {_NO_TILES}"
        )
        .with_target(instant(queries.HOSTS, "hosts up", "A"))
        .with_target(instant(queries.GPUS, "their GPUs", "B"))
    )


def lost() -> stat.Panel:
    """GPU-hours lost, their share and their price."""
    return (
        figures("Lost, and its price", GPU_HOURS)
        .span(8)
        .decimals(2)
        .description(
            "Time in which a GPU was in use and idle, over the time shown, in GPU-hours; its "
            "share of the time in use; its price at the price of a GPU-hour above. Start-up "
            "counts; time whose cause is still pending does not. Only whole tiles count, and they "
            "end a minute before they are recorded; the dashboards of a host and a run read up to "
            f"the last scrape, so their figures can differ a little. {_UNUSED} {_NO_TILES}"
        )
        .with_target(instant(queries.LOST_HOURS, "lost", "A"))
        .with_target(instant(queries.LOST_SHARE, "of the time in use", "B"))
        .with_target(instant(queries.LOST_PRICE, "price", "C"))
        .override_by_name(
            "of the time in use",
            [
                *unit("percentunit", 0),
                field_property(
                    "thresholds",
                    {
                        "mode": "absolute",
                        "steps": [
                            {"value": value, "color": colour} for value, colour in LOSS_THRESHOLDS
                        ],
                    },
                ),
            ],
        )
        .override_by_name("price", unit(MONEY, 2))
    )


def coverage() -> stat.Panel:
    """How much of the time shown was measured."""
    return (
        figures("Coverage", "percentunit")
        .span(4)
        .decimals(1)
        .description(
            "GPU time that was recorded, as a share of what the known GPUs should have had over "
            "the time shown. Time before the rules were loaded, and missed evaluations, are "
            "missing here; the other figures do not include them and are too small by as much. "
            f"{_NO_TILES}"
        )
        .thresholds(thresholds((None, "red"), (0.9, "orange"), (0.99, "green")))
        .with_target(instant(queries.COVERAGE, "recorded", "A"))
    )


def firing() -> table.Panel:
    """Alerts that fire now."""
    panel = (
        table.Panel()
        .title("Alerts that fire now")
        .description(
            "Each firing alert of gpumon, with its host, GPU, run and user where it has them. "
            f"'none': no alert fires. {_NO_TILES}"
        )
        .unit("none")
        .height(7)
        .span(16)
    )
    columns = (
        Column("severity", "Severity"),
        Column("alertname", "Alert"),
        Column("host", "Host", link_to(HOST_UID, "host")),
        Column("gpu", "GPU"),
        Column("run", "Run", link_to(RUN_UID, "run")),
        Column("user", "User"),
    )
    return rows(panel, {"A": queries.FIRING}, columns, hidden=("Value",))


def energy() -> stat.Panel:
    """Energy of the lost time."""
    return (
        figures("Energy of the lost time", "kwatth")
        .height(7)
        .span(THIRD)
        .decimals(1)
        .description(
            "Energy that boards drew while they were in use and idle, over the time shown; its "
            "price, and its emissions, with the price and the grams of CO₂ per kWh above. "
            "Cooling and the rest of the host are not included. Do not add this price to that of "
            f"GPU-hours if yours includes energy. {_UNUSED} 'No data' where hours are shown: no "
            "board reports energy."
        )
        .with_target(instant(queries.LOST_KWH, "energy", "A"))
        .with_target(instant(queries.LOST_KWH_PRICE, "price", "B"))
        .with_target(instant(queries.LOST_CO2, "CO₂", "C"))
        .override_by_name("price", unit(MONEY, 2))
        .override_by_name("CO₂", unit("massg", 1))
    )


def use_of_time() -> timeseries.Panel:
    """Busy, lost and unused time, adding up to 100 %."""
    panel = (
        stacked(curves("Where the GPU time went", "percentunit"))
        .span(THIRD)
        .max(1)
        .description(
            "Share of the time of all GPUs; the bands add up to 100 %. A gap: no tile was recorded "
            f"then. {_NO_TILES}"
        )
    )
    bands = (
        (queries.BUSY_BAND, "busy", "green"),
        (queries.LOST_BAND, "lost", "red"),
        (queries.NOT_IN_USE_BAND, "not in use", "#5a5a5a"),
    )
    for ref, (expr, name, colour) in zip("ABC", bands, strict=True):
        panel = panel.with_target(over_tiles(expr, name, ref)).override_by_name(
            name, [fixed(colour)]
        )
    return panel


def causes() -> timeseries.Panel:
    """Causes of the lost time."""
    panel = (
        stacked(curves("What the lost time went to", "none", GPUS))
        .span(THIRD)
        .decimals(2)
        .description(
            "GPUs lost to each cause: 1 is one GPU that is in use and idle all the time. "
            "docs/glossary.md explains the causes. 'nothing lost': GPUs answer and lose nothing. "
            f"{_NO_TILES}"
        )
        .with_target(over_tiles(queries.CAUSES, "{{cause}}", "A"))
    )
    return worded(panel, CAUSE_COLOURS, CAUSE_WORDS)


def reasons() -> timeseries.Panel:
    """Reasons of input waits."""
    panel = (
        stacked(curves("Why batches are late", "none", GPUS))
        .span(THIRD)
        .decimals(2)
        .description(
            "GPUs that wait for input, by reason: 1 is one idle GPU. Together they are the cause "
            "'waiting for input'. docs/why-late.md says what to change first. 'no tagged wait': no "
            f"tagged run waits. {_NO_TILES}"
        )
        .with_target(over_tiles(queries.REASONS, "{{reason}}", "A"))
    )
    return worded(panel, REASON_COLOURS, REASON_WORDS)


def _worst(
    key: str, title: str, targets: dict[str, str], more: str, uid: str | None
) -> table.Panel:
    panel = (
        table.Panel()
        .title(title)
        .unit("none")
        .height(11)
        .span(THIRD)
        .mappings([NOT_IN_USE])
        .description(
            "The ten with the most GPU-hours lost over the time shown; the share is of their time "
            f"in use, the cause is the largest. {more} 'nothing lost': GPUs answer and lost "
            f"nothing. {_NO_TILES}"
        )
    )
    links = [link_to(uid, key)] if uid else []
    columns = (
        Column(key, key.capitalize(), *links),
        Column("Value #lost", "GPU-hours lost", *unit("none", 2)),
        Column("Value #share", "Share", *unit("percentunit", 0)),
        Column("Value #price", "Price", *unit(MONEY, 2)),
        Column("cause", "Main cause", cells_in_words(CAUSE_WORDS)),
    )
    return rows(panel, targets, columns, hidden=("Value #cause",))


def worst_hosts() -> table.Panel:
    """The worst ten hosts."""
    more = "A click on a host shows its GPUs."
    return _worst("host", "Worst ten hosts", queries.WORST_HOSTS, more, HOST_UID)


def worst_runs() -> table.Panel:
    """The worst ten runs."""
    more = (
        "Only time of tagged runs counts here; 'no tagged run at work': none used a GPU. '_other': "
        "runs beyond the limit of a daemon. A click on a run shows why."
    )
    return _worst("run", "Worst ten runs", queries.WORST_RUNS, more, RUN_UID)


def worst_users() -> table.Panel:
    """The worst ten users."""
    more = (
        "It needs 'gpumon serve --users'. 'no user at work': without it, or while no GPU is in use."
    )
    return _worst("user", "Worst ten users", queries.WORST_USERS, more, None)


def recorded() -> timeseries.Panel:
    """What was recorded, and what should have been."""
    return (
        curves("Coverage over time", "percentunit")
        .height(7)
        .span(WIDE)
        .max(1)
        .line_interpolation(common.LineInterpolation.STEP_AFTER)
        .description(
            "GPU time observed: as a share of what the known GPUs should have; below 100 %, "
            "daemons were down, or GPUs or samples are missing. Evaluations of the rules: the "
            "share that took place; a gap is time in which none did, and nothing was recorded. "
            f"{_NO_TILES}"
        )
        .with_target(over_tiles(queries.COVERAGE_NOW, "GPU time observed", "A"))
        .with_target(over_tiles(queries.TILES_NOW, "evaluations of the rules", "B"))
    )


def dashboard() -> build.Dashboard:
    """The complete dashboard."""
    whole = (
        frame(
            FLEET_UID,
            "GPU-hours lost on all hosts, their price and causes, and the worst ten hosts, runs "
            "and "
            "users. It needs the recording rules of gpumon.",
            shown="now-6h",
            refresh="1m",
        )
        .with_variable(
            with_all(choice("job", "Job", "label_values(gpumon_build_info, job)")).hide(
                model.VariableHide.HIDE_VARIABLE
            )
        )
        .with_variable(
            choice("tile", "Tile", queries.TILE_CHOICES)
            .regex(queries.TILE_REGEX)
            .hide(model.VariableHide.HIDE_VARIABLE)
            .current(model.VariableOption(text="5m", value="5m"))
        )
        .with_variable(number(*PRICE))
        .with_variable(
            number("kwh_price", "Price of a kWh", "0.30", "In your currency, with a decimal point.")
        )
        .with_variable(
            number(
                "co2", "Grams of CO₂ per kWh", "400", "Of your supplier, or of your country's grid."
            )
        )
        .annotation(note("Alerts", queries.FIRING_NOW, "red"))
    )
    for make in (hosts_down, trouble, size, lost, coverage, firing, energy):
        whole = whole.with_panel(make())
    for make_curves in (use_of_time, causes, reasons):
        whole = whole.with_panel(make_curves())
    for make_table in (worst_hosts, worst_runs, worst_users):
        whole = whole.with_panel(make_table())
    return whole.with_panel(recorded())
