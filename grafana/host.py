"""The dashboard of one host: what each GPU does, how warm and full it is, and whose work it is."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.builders import barchart, stat, table, timeseries
from grafana_foundation_sdk.builders import common as options
from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from grafana import host_hardware
from grafana import host_queries as queries
from grafana.parts import (
    CAUSE_COLOURS,
    CAUSE_WORDS,
    GPU_HOURS,
    GPUS,
    HALF,
    HOST_UID,
    LOSS_THRESHOLDS,
    NAMED_GPU,
    NO_ANSWER,
    NO_PAUSE,
    REASON_COLOURS,
    REASON_WORDS,
    RUN_UID,
    THIRD,
    WIDE,
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
    over_time,
    rows,
    stacked,
    thresholds,
    unit,
    with_all,
    worded,
)


def lost_share() -> stat.Panel:
    """The loss over the time shown."""
    return (
        figures("Lost on this host", "percentunit")
        .description(
            "Time in which a GPU was in use and no kernel ran, over the time shown: of all GPUs "
            "together, in GPU-hours, and as a share of their time in use. Starved: the share in "
            "which a tagged run waited for input. Suspected: untagged pauses that were probably "
            "waits for input. All are read up to the last scrape; the fleet's tiles end a minute "
            "earlier. 'not in use': the GPUs answer, but no job runs on them. "
            f"{NO_ANSWER}"
        )
        .span(16)
        .decimals(1)
        .thresholds(thresholds(*LOSS_THRESHOLDS))
        .with_target(instant(queries.LOST_HOURS, "lost", "A"))
        .with_target(instant(queries.LOST_SHARE, "of the time in use", "B"))
        .with_target(instant(queries.STARVED_SHARE, "starved", "C"))
        .with_target(instant(queries.SUSPECTED_SHARE, "suspected", "D"))
        .override_by_name("lost", [*unit(GPU_HOURS, 2), fixed("text")])
    )


def main_cause() -> stat.Panel:
    """The cause to look at first."""
    return (
        culprit(queries.CULPRIT)
        .description(
            "The cause with the most lost GPU time over the time shown, and how much it took. "
            "'cause unknown' means that no run was tagged. 'nothing lost': the GPUs answer and "
            f"lost nothing. {NO_ANSWER}"
        )
        .span(8)
    )


def use_of_time() -> timeseries.Panel:
    """Busy, idle and starved time, adding up to 100 %."""
    panel = stacked(curves("Where the GPU time went", "percentunit")).description(
        "Share of the time of all selected GPUs; the bands add up to 100 %. It uses time counters, "
        "so that no scrape interval hides a pause. Idle time appears once its cause is settled. "
        f"{NO_ANSWER}"
    )
    bands = (
        (queries.BUSY_BAND, "busy", "green"),
        (queries.STARVED_BAND, "starved", "red"),
        (queries.SUSPECTED_BAND, "suspected", "orange"),
        (queries.OTHER_LOSS_BAND, "other loss", "yellow"),
        (queries.NOT_IN_USE_BAND, "not in use", "#5a5a5a"),
    )
    for ref, (expr, name, colour) in zip("ABCDE", bands, strict=True):
        panel = panel.with_target(over_time(expr, name, ref)).override_by_name(
            name, [fixed(colour)]
        )
    return panel.max(1)


def causes() -> timeseries.Panel:
    """Causes of the lost time."""
    panel = (
        stacked(curves("What the lost time went to", "none", GPUS))
        .description(
            "GPUs lost to each cause, summed over the selected ones: 1 is one idle GPU. Time "
            "outside jobs is left out. 'nothing lost': the GPUs answer and lose nothing. "
            f"{NO_ANSWER}"
        )
        .decimals(2)
        .with_target(over_time(queries.CAUSES, "{{cause}}", "A"))
    )
    return worded(panel, CAUSE_COLOURS, CAUSE_WORDS)


def reasons() -> timeseries.Panel:
    """Reasons of input waits."""
    panel = (
        stacked(curves("Why batches are late", "none", GPUS))
        .description(
            "GPUs that wait for input, by reason: 1 is one idle GPU. 'reasons unknown': no "
            "evidence. Together they are the band 'waiting for input' beside this. The runbook of "
            "GpumonGPUStarved says what to change first. 'no tagged wait': no tagged run waits. "
            f"{NO_ANSWER}"
        )
        .decimals(2)
        .with_target(over_time(queries.REASONS, "{{reason}}", "A"))
    )
    return worded(panel, REASON_COLOURS, REASON_WORDS)


def gaps() -> timeseries.Panel:
    """Lengths of pauses."""
    return (
        curves("Length of the pauses", "s")
        .description(
            "Median and 95th percentile of the pauses between two bursts of work, in seconds, "
            "counted when a pause ends. Pauses shorter than the driver's sample (1/6 to 1 s) are "
            "invisible here; they lower the busy share. 'no pause ended': the GPUs answer, and "
            f"none has paused and worked again. {NO_ANSWER}"
        )
        .with_target(over_time(queries.GAP_MEDIAN, f"{NAMED_GPU} median", "A"))
        .with_target(over_time(queries.GAP_P95, f"{NAMED_GPU} 95 %", "B"))
        .with_target(over_time(queries.NO_GAP, "no pause ended", "C"))
        .override_by_name("no pause ended", [fixed("text")])
    )


_COLUMNS: Final = (
    Column("gpu", "GPU"),
    Column("name", "Model"),
    Column("uuid", "UUID"),
    Column("Value #busy", "Busy", *unit("percentunit")),
    Column("Value #starved", "Starved", *unit("percentunit")),
    Column("Value #suspected", "Suspected", *unit("percentunit")),
    Column("Value #lost", "Lost", *unit("s")),
    Column("Value #gap", "Pause 95 %", *unit("s"), field_property("mappings", [NO_PAUSE])),
    Column("Value #memory", "Memory", *unit("percentunit")),
    Column("Value #now", "Starved now", *unit("bool_yes_no")),
)


def per_gpu() -> table.Panel:
    """One row for each GPU."""
    panel = (
        table.Panel()
        .title("Each GPU")
        .description(
            "Over the time shown: shares of observed time; Lost: in-use GPU time in which no "
            "kernel ran; Pause 95 %: 95th percentile of the pauses, 'none' without any; Memory: "
            "present share in use; Starved now: whether 5 % or more of the last minute in use was "
            f"starved. A GPU that is not in use has a row with busy 0 %. {NO_ANSWER}"
        )
        .unit("none")
        .height(9)
        .span(WIDE)
        .decimals(1)
    )
    return rows(panel, queries.TABLE, _COLUMNS, hidden=("job", "instance", "Value #info"))


def use_by_cause() -> barchart.Panel:
    """What each GPU did, as one bar."""
    panel = (
        barchart.Panel()
        .title("Use of each GPU, by cause")
        .description(
            "Time of each GPU over the time shown: busy, and idle by cause; a GPU that was "
            "observed all the time has a bar of that length. 'not in use': no job was on the GPU. "
            f"{NO_ANSWER}"
        )
        .height(9)
        .span(HALF)
        .unit("s")
        .orientation(common.VizOrientation.HORIZONTAL)
        .stacking(common.StackingMode.NORMAL)
        .show_value(common.VisibilityMode.NEVER)
        .fill_opacity(80)
        .legend(
            options.VizLegendOptions()
            .show_legend(True)
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
        )
        .transformations(
            [
                model.DataTransformerConfig(
                    id_val="groupingToMatrix",
                    options={
                        "columnField": "cause",
                        "rowField": "card",
                        "valueField": "Value",
                        "emptyValue": "zero",
                    },
                )
            ]
        )
        .with_target(instant(queries.USE_BY_CAUSE, "", "A").format(PromQueryFormat.TABLE))
    )
    return worded(panel, CAUSE_COLOURS, CAUSE_WORDS)


def runs() -> table.Panel:
    """The runs on each GPU."""
    panel = (
        table.Panel()
        .title("Runs on each GPU now")
        .description(
            "Tagged runs that use each GPU now, and their job in Slurm or another scheduler where "
            "there is one. A click on a run shows why it loses time. 'no tagged run': the GPU "
            f"answers. {NO_ANSWER}"
        )
        .unit("none")
        .height(9)
        .span(THIRD)
    )
    columns = (
        Column("gpu", "GPU"),
        Column("name", "Model"),
        Column("run", "Run", link_to(RUN_UID, "run")),
        Column("job_id", "Job"),
    )
    return rows(panel, {"A": queries.RUNS}, columns, hidden=("Value",))


def users() -> table.Panel:
    """Users with processes on each GPU."""
    panel = (
        table.Panel()
        .title("Users on each GPU now")
        .description(
            "Users with a process on each GPU, also without tags. It needs 'gpumon serve --users'. "
            "'none seen': the GPU answers, and no process is on it, or users are not exported. "
            f"{NO_ANSWER}"
        )
        .unit("none")
        .height(9)
        .span(4)
    )
    columns = (Column("gpu", "GPU"), Column("user", "User"))
    return rows(panel, {"A": queries.USERS}, columns, hidden=("Value", "name"))


def dashboard() -> build.Dashboard:
    """The complete dashboard."""
    whole = (
        frame(
            HOST_UID,
            "How much GPU time one host loses, why, and on which GPU; its temperatures, power, "
            "memory "
            "and errors; whose work it is.",
            shown="now-1h",
            refresh="10s",
        )
        .with_variable(
            with_all(choice("job", "Job", "label_values(gpumon_build_info, job)")).all_value(".+")
        )
        .with_variable(choice("host", "Host", queries.HOST_CHOICES).regex(queries.HOST_REGEX))
        .with_variable(
            with_all(choice("gpu", "GPU", queries.GPU_CHOICES))
            .all_value(".+")
            .regex(queries.GPU_CHOICES_REGEX)
        )
        .annotation(note("Alerts", queries.FIRING, "red"))
        .annotation(note("Run starts", queries.RUN_STARTS, "blue"))
    )
    whole = whole.with_panel(lost_share()).with_panel(main_cause())
    for make in (use_of_time, causes, reasons, gaps):
        whole = whole.with_panel(make())
    whole = whole.with_panel(per_gpu())
    whole = whole.with_panel(use_by_cause()).with_panel(runs()).with_panel(users())
    for title, panels in host_hardware.ROWS.items():
        whole = whole.with_row(build.Row(title))
        for make_panel in panels:
            whole = whole.with_panel(make_panel())
    return whole
