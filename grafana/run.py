"""The dashboard of one run: what it loses, why, how fast it is, and on which GPUs."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import stat, table, timeseries
from grafana_foundation_sdk.models import dashboard as model

from grafana import run_queries as queries
from grafana.parts import (
    CAUSE_COLOURS,
    CAUSE_WORDS,
    GPU_HOURS,
    GPUS,
    HALF,
    HOST_UID,
    LOSS_THRESHOLDS,
    MONEY,
    NAMED_GPU,
    PHASE_WORDS,
    PRICE,
    REASON_COLOURS,
    REASON_WORDS,
    RUN_UID,
    Column,
    choice,
    culprit,
    curves,
    field_property,
    figures,
    fixed,
    frame,
    instant,
    link_to,
    note,
    number,
    over_time,
    rows,
    stacked,
    thresholds,
    unit,
    with_all,
    worded,
)

_NO_RUN: Final = "'No data': no daemon reported this run in the time shown."
_UNUSED: Final = "'not in use': the run was seen and used no GPU."
_UPPER_BOUND: Final = (
    "It is 1 / (1 - share of waits for input), an upper bound: it assumes that the run never waits "
    "for input and that nothing else becomes slower. The report of the host gives a bound for each "
    "piece of advice."
)


def lost() -> stat.Panel:
    """What the run lost."""
    return (
        figures("Lost by this run", "percentunit")
        .span(10)
        .decimals(1)
        .description(
            "Time in which its GPUs were in use and no kernel ran, over the time shown: in "
            "GPU-hours, and as a share of the run's time in use; the share that was a wait for "
            "input; the price of the loss at the price of a GPU-hour above. All are read up to the "
            f"last scrape; the fleet's tiles end a minute earlier. {_UNUSED} {_NO_RUN}"
        )
        .thresholds(thresholds(*LOSS_THRESHOLDS))
        .with_target(instant(queries.LOST_HOURS, "lost", "A"))
        .with_target(instant(queries.LOST_SHARE, "of the time in use", "B"))
        .with_target(instant(queries.INPUT_SHARE, "waiting for input", "C"))
        .with_target(instant(queries.LOST_PRICE, "price", "D"))
        .override_by_name("lost", [*unit(GPU_HOURS, 2), fixed("text")])
        .override_by_name("price", [*unit(MONEY, 2), fixed("text")])
    )


def main_cause() -> stat.Panel:
    """The cause to look at first."""
    return (
        culprit(queries.CULPRIT)
        .span(6)
        .description(
            "The cause with the most lost GPU time over the time shown, and how much it took. "
            f"'nothing lost': the run used GPUs and lost nothing. {_NO_RUN}"
        )
    )


def bound() -> stat.Panel:
    """How much faster the run could become."""
    return (
        figures("Speed-up, at most", "suffix:times")
        .span(4)
        .decimals(2)
        .description(
            f"Of the whole time shown; the curve of steps shows it at each moment. {_UPPER_BOUND} "
            f"{_UNUSED} {_NO_RUN}"
        )
        .with_target(instant(queries.SPEED_BOUND, "over the time shown", "A"))
    )


def state() -> stat.Panel:
    """Whether the run hangs, and its epoch."""
    hanging = {
        "0": model.ValueMappingResult(text="running", color="green"),
        "1": model.ValueMappingResult(text="probably hangs", color="red"),
    }
    no_epoch = {"-1": model.ValueMappingResult(text="not reported", color="text")}
    return (
        figures("Now", "none")
        .span(4)
        .decimals(0)
        .description(
            "Whether the run probably hangs (no step for longer than ever before), and its epoch, "
            "counted from 0. 'No data': no daemon reports this run now; it may have ended."
        )
        .with_target(instant(queries.HANGING, "run", "A"))
        .with_target(instant(queries.EPOCH, "epoch", "B"))
        .override_by_name("run", [field_property("mappings", [model.ValueMap(options=hanging)])])
        .override_by_name("epoch", [field_property("mappings", [model.ValueMap(options=no_epoch)])])
    )


def causes() -> timeseries.Panel:
    """Busy and lost time of its GPUs, in GPUs."""
    panel = (
        stacked(curves("Where its GPU time went", "none", GPUS))
        .decimals(2)
        .description(
            "GPUs busy for this run, and lost to each cause: 1 is one GPU all the time. On a "
            f"shared GPU the run has its part. 'nothing lost': it loses nothing then. {_NO_RUN}"
        )
        .with_target(over_time(queries.BUSY_GPUS, "busy", "A"))
        .with_target(over_time(queries.CAUSES, "{{cause}}", "B"))
    )
    return worded(panel, CAUSE_COLOURS, CAUSE_WORDS)


def reasons() -> timeseries.Panel:
    """Reasons of input waits on its GPUs."""
    panel = (
        stacked(curves("Why its batches are late", "none", GPUS))
        .decimals(2)
        .description(
            "GPUs of this run that wait for input, by reason: 1 is one idle GPU. Reasons are "
            "counted for each GPU, so a shared GPU shows those of all its runs. docs/why-late.md "
            f"says what to change first. 'no tagged wait': the run does not wait. {_NO_RUN}"
        )
        .with_target(over_time(queries.REASONS, "{{reason}}", "A"))
    )
    return worded(panel, REASON_COLOURS, REASON_WORDS)


def phases() -> timeseries.Panel:
    """Time of the training process by phase."""
    panel = (
        stacked(curves("Phases of the process", "percentunit"))
        .description(
            "Time of the training process by phase, as a share; with several runs, their mean. A "
            "wait for input costs nothing while the GPU has work, so this is not the loss. "
            f"'no phase recorded': the run exists and has recorded none yet. {_NO_RUN}"
        )
        .with_target(over_time(queries.PHASES, "{{phase}}", "A"))
    )
    colours = {**CAUSE_COLOURS, "train_step": "green", "no phase recorded": "text"}
    return worded(panel, colours, PHASE_WORDS)


def steps() -> timeseries.Panel:
    """Steps per second, and how many there could be."""
    return (
        curves("Steps", "suffix:steps/s")
        .decimals(2)
        .description(
            "Steps per second of each run and, dashed, how many there could be at most at that "
            "moment without waits for input; 'Speed-up' above is of the whole time shown. "
            f"{_UPPER_BOUND} 0: the run exists and makes no step. {_NO_RUN}"
        )
        .with_target(over_time(queries.STEPS, "{{run}}", "A"))
        .with_target(over_time(queries.POSSIBLE_STEPS, "at most, without waits for input", "B"))
        .override_by_name(
            "at most, without waits for input",
            [
                field_property("custom.lineStyle", {"fill": "dash", "dash": [6, 6]}),
                fixed("text"),
            ],
        )
    )


def samples() -> timeseries.Panel:
    """Samples per second."""
    return (
        curves("Samples", "suffix:samples/s")
        .description(
            "Samples trained on per second. 0: the run exists, and makes no step or does not "
            f"report samples. {_NO_RUN}"
        )
        .with_target(over_time(queries.SAMPLES, "{{run}}", "A"))
    )


def gpu_busy() -> timeseries.Panel:
    """Busy share of each of its GPUs."""
    return (
        curves("Busy share of its GPUs", "percentunit")
        .max(1)
        .description(
            "Busy share of each GPU while this run is on it; a GPU that is lower than the others "
            "is fed more slowly, or waits for them. 0 %: it is on the GPU, which does nothing. "
            f"{_NO_RUN}"
        )
        .with_target(over_time(queries.GPU_BUSY, f"{NAMED_GPU} {{{{instance}}}}", "A"))
    )


def shares() -> timeseries.Panel:
    """Shares of each batch, by GPU."""
    return (
        curves("Shares of each batch", "percentunit")
        .max(1)
        .description(
            "Share of each batch that the run gives to each GPU; a change is marked. 'none': the "
            f"run reports no shares, as most do. {_NO_RUN}"
        )
        .with_target(over_time(queries.SHARES, f"{NAMED_GPU} {{{{instance}}}}", "A"))
    )


def gpus() -> table.Panel:
    """The GPUs of the run."""
    panel = (
        table.Panel()
        .title("Its GPUs")
        .unit("none")
        .height(9)
        .span(HALF)
        .description(
            "GPUs that the run used in the time shown. Share: of each batch, where the run "
            "reports it. Busy and starved: shares of the GPU's observed time, also with other "
            f"runs. No rows although the run exists: it is on no GPU that a daemon sees. {_NO_RUN}"
        )
    )
    columns = (
        Column("run", "Run"),
        Column("host", "Host", link_to(HOST_UID, "host")),
        Column("gpu", "GPU"),
        Column("name", "Model"),
        Column("user", "User"),
        Column("job_id", "Job"),
        Column("Value #share", "Share", *unit("percentunit", 1)),
        Column("Value #busy", "Busy", *unit("percentunit", 1)),
        Column("Value #starved", "Starved", *unit("percentunit", 1)),
    )
    return rows(panel, queries.GPUS, columns, hidden=("job", "instance", "uuid", "Value #info"))


def dashboard() -> build.Dashboard:
    """The complete dashboard."""
    whole = (
        frame(
            RUN_UID,
            "What one training run loses, to what cause and for what reason, how fast it is, and "
            "on which "
            "GPUs it runs.",
            shown="now-3h",
            refresh="30s",
        )
        .with_variable(choice("run", "Run", queries.RUN_CHOICES).multi(True))
        .with_variable(
            with_all(choice("run_gpu", "GPU", queries.GPU_CHOICES)).hide(
                model.VariableHide.HIDE_VARIABLE
            )
        )
        .with_variable(number(*PRICE))
        .annotation(note("Alerts", queries.FIRING, "red"))
        .annotation(note("Run starts", queries.RUN_STARTS, "blue"))
        .annotation(note("Epochs", queries.EPOCHS, "purple"))
        .annotation(note("Ratio changes", queries.RATIO_CHANGES, "orange"))
    )
    for make in (lost, main_cause, bound, state):
        whole = whole.with_panel(make())
    for make_curves in (causes, reasons, phases, steps):
        whole = whole.with_panel(make_curves())
    whole = whole.with_panel(gpus()).with_panel(gpu_busy())
    return whole.with_panel(shares()).with_panel(samples())
