"""The PromQL of the run dashboard.

``$run`` are the runs shown. ``$run_gpu``, which is hidden, are the UUIDs of GPUs that ``$run`` used
in the time shown: a series of a GPU is selected by it, so that no query reads the GPUs of a whole
fleet. Counters of runs come from the daemons of all hosts and add up.
"""

from __future__ import annotations

from typing import Final

from grafana.fleet_queries import HOST_OF_INSTANCE

SHOWN: Final = "$__range"
RATE: Final = "$__rate_interval"
RUN: Final = 'run=~"$run"'
GPU: Final = 'uuid=~"$run_gpu"'
LOST: Final = 'cause!="not_in_use"'
ONE_GPU: Final = "job, instance, uuid"


def _busy(function: str, window: str) -> str:
    return f"sum({function}(gpumon_training_gpu_busy_seconds_total{{{RUN}}}[{window}]))"


def _idle(causes: str, function: str, window: str, by: str = "") -> str:
    series = f"{function}(gpumon_training_gpu_idle_seconds_total{{{RUN},{causes}}}[{window}])"
    return f"sum by ({by}) ({series})" if by else f"sum({series})"


INPUT_WAIT: Final = 'cause="input_wait"'


def _part(causes: str, function: str, window: str) -> str:
    """Idle time of these causes; 0 where the run has series and none of them."""
    return f"({_idle(causes, function, window)} or on() {_busy(function, window)} * 0)"


_LOST: Final = _part(LOST, "increase", SHOWN)
_INPUT: Final = _part(INPUT_WAIT, "increase", SHOWN)
_USED: Final = f"({_busy('increase', SHOWN)} + {_LOST} > 0)"


def _if_used(value: str) -> str:
    """The value; -1 if the run has series and used no GPU; nothing without series."""
    unused = f"{_busy('increase', SHOWN)} * 0 - 1 unless on() {_USED}"
    return f"({value}) and on() {_USED} or on() ({unused})"


LOST_SHARE: Final = _if_used(f"{_LOST} / {_USED}")
INPUT_SHARE: Final = _if_used(f"{_INPUT} / {_USED}")
LOST_HOURS: Final = _if_used(f"{_LOST} / 3600")
LOST_PRICE: Final = _if_used(f"{_LOST} / 3600 * $price")
SPEED_BOUND: Final = _if_used(f"1 / (1 - clamp_max({_INPUT} / {_USED}, 0.99))")
"""If the run never waited for input and all else stayed as it is."""

HANGING: Final = f"max(gpumon_training_hanging{{{RUN}}})"
EPOCH: Final = (
    f"max(gpumon_training_epoch{{{RUN}}}) or max(gpumon_training_hanging{{{RUN}}}) * 0 - 1"
)

_BUSY_NOW: Final = _busy("rate", RATE)
CULPRIT: Final = (
    f"topk(1, {_idle(LOST, 'increase', SHOWN, 'cause')} > 0) / 3600 or on() "
    f'label_replace({_busy("increase", SHOWN)} * 0, "cause", "nothing lost", "", "")'
)
BUSY_GPUS: Final = _BUSY_NOW
CAUSES: Final = (
    f"{_idle(LOST, 'rate', RATE, 'cause')} > 0 or on() "
    f'label_replace({_BUSY_NOW} * 0, "cause", "nothing lost", "", "")'
)

_ITS_GPUS: Final = f"max by ({ONE_GPU}) (gpumon_gpu_job_info{{{RUN},{GPU}}})"
REASONS: Final = (
    f"sum by (reason) (rate(gpumon_gpu_input_wait_seconds_total{{{GPU}}}[{RATE}])"
    f" * on({ONE_GPU}) group_left() {_ITS_GPUS}) > 0"
    f' or on() label_replace({_BUSY_NOW} * 0, "reason", "no tagged wait", "", "")'
)
"""Of its GPUs while it is on them: reasons are counted for each GPU, not for each run."""

_RUNS_NOW: Final = f"count(count by (run) (gpumon_training_hanging{{{RUN}}}))"
PHASES: Final = (
    f"sum by (phase) (rate(gpumon_training_phase_seconds_total{{{RUN}}}[{RATE}]))"
    f" / on() group_left() {_RUNS_NOW}"
    f' or on() label_replace({_RUNS_NOW} * 0, "phase", "no phase recorded", "", "")'
)
STEPS: Final = f"sum by (run) (rate(gpumon_training_steps_total{{{RUN}}}[{RATE}]))"
POSSIBLE_STEPS: Final = (
    f"sum({STEPS}) / (1 - clamp_max({_part(INPUT_WAIT, 'rate', RATE)}"
    f" / ({_BUSY_NOW} + {_part(LOST, 'rate', RATE)} > 0), 0.99))"
)
SAMPLES: Final = (
    f"sum by (run) (rate(gpumon_training_samples_total{{{RUN}}}[{RATE}]))"
    f" or sum by (run) (gpumon_training_hanging{{{RUN}}}) * 0"
)

# -- its GPUs ------------------------------------------------------------------------------

_NAMES: Final = f"on({ONE_GPU}) group_left(gpu, name) max by ({ONE_GPU}, gpu, name)"
_WAS_ON: Final = (
    f"max by ({ONE_GPU}, run, user, job_id)"
    f" (last_over_time(gpumon_gpu_job_info{{{RUN},{GPU}}}[{SHOWN}]))"
)


def _of_gpu(name: str, function: str = "increase", window: str = SHOWN) -> str:
    return f"sum by ({ONE_GPU}) ({function}(gpumon_gpu_{name}_seconds_total{{{GPU}}}[{window}]))"


GPUS: Final = {
    "info": (
        f"label_replace({_WAS_ON} * {_NAMES}"
        f" (last_over_time(gpumon_gpu_info{{{GPU}}}[{SHOWN}])), {HOST_OF_INSTANCE})"
    ),
    "share": (
        f"max by ({ONE_GPU}, run) (label_replace(last_over_time("
        f"gpumon_training_share_ratio{{{RUN},{GPU}}}[{SHOWN}]), {HOST_OF_INSTANCE}))"
    ),
    "busy": f"{_of_gpu('busy')} / {_of_gpu('observed')}",
    "starved": f"{_of_gpu('starved')} / {_of_gpu('observed')}",
}
"""One row for each GPU and run."""

SHARES: Final = (
    f"max by ({ONE_GPU}, run) (gpumon_training_share_ratio{{{RUN},{GPU}}})"
    f" * {_NAMES} (gpumon_gpu_info{{{GPU}}})"
    f" or label_replace(max by (run) (gpumon_training_hanging{{{RUN}}}) * 0, "
    '"name", "none", "", "")'
    f" unless on(run) gpumon_training_share_ratio{{{RUN},{GPU}}}"
)
GPU_BUSY: Final = (
    f"{_of_gpu('busy', 'rate', RATE)} / on({ONE_GPU}) {_of_gpu('observed', 'rate', RATE)}"
    f" * {_NAMES} (gpumon_gpu_info{{{GPU}}}) and on({ONE_GPU}) {_ITS_GPUS}"
)

# -- variables and annotations ---------------------------------------------------------------

RUN_CHOICES: Final = "label_values(gpumon_training_run_start_timestamp_seconds, run)"
GPU_CHOICES: Final = f"label_values(gpumon_gpu_job_info{{{RUN}}}, uuid)"

RUN_STARTS: Final = f"max by (run) (gpumon_training_run_start_timestamp_seconds{{{RUN}}}) * 1000"
"""In milliseconds, as Grafana expects a time."""
# Two minutes hold two scrapes a minute apart; Grafana makes one mark of consecutive points.
EPOCHS: Final = f"max by (run) (changes(gpumon_training_epoch{{{RUN}}}[2m])) > 0"
RATIO_CHANGES: Final = (
    f"max by (run) (changes(gpumon_training_ratio_changes_total{{{RUN}}}[2m])) > 0"
)
FIRING: Final = f'ALERTS{{alertname=~"Gpumon.*",alertstate="firing",{RUN}}}'
