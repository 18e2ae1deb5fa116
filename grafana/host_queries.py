"""The PromQL of the host dashboard.

``$job``, ``$host`` and ``$gpu`` are the dashboard's variables. A host is the name of an instance
without its port, and only one is shown at a time, because panels join series of GPUs.
``$__range`` is the time shown, ``$__rate_interval`` at least four scrapes.
Shares of time use counters: a gauge scraped in the rhythm of a training run
would only show one phase of it.
"""

from __future__ import annotations

from typing import Final

# In backquotes, escaped characters of a host's name stay as they are.
HOST: Final = 'job=~"$job",instance=~`\\[?${host:regex}\\]?(:[0-9]+)?`'
GPU: Final = f'{HOST},uuid=~"$gpu"'
ONE_GPU: Final = "job, instance, uuid"
SHOWN: Final = "$__range"
RATE: Final = "$__rate_interval"

LOST: Final = 'cause!="not_in_use"'
"""Idle time outside jobs is no loss."""
NOT_LOST: Final = 'cause="not_in_use"'


def _time(name: str, function: str, window: str) -> str:
    return f"{function}(gpumon_gpu_{name}_seconds_total{{{GPU}}}[{window}])"


def _idle(causes: str, function: str, window: str) -> str:
    return f"{function}(gpumon_gpu_idle_seconds_total{{{GPU},{causes}}}[{window}])"


def _sum(series: str) -> str:
    """A sum that is 0 where the series does not exist yet."""
    return f"(sum({series}) or vector(0))"


def _of_in_use(part: str) -> str:
    """A share of in-use time; -1 if GPUs answer but none was used; empty without answers."""
    lost = _sum(_idle(LOST, "increase", SHOWN))
    in_use = f"(sum({_time('busy', 'increase', SHOWN)}) + {lost} > 0)"
    none_used = f"sum({_time('observed', 'increase', SHOWN)}) * 0 - 1"
    return f"{_sum(part)} / {in_use} or ({none_used})"


def _band(part: str) -> str:
    """A share of the settled time: the bands add up to 1 at every point."""
    busy = f"sum({_time('busy', 'rate', RATE)})"
    idle = _sum(f"rate(gpumon_gpu_idle_seconds_total{{{GPU}}}[{RATE}])")
    return f"{part} / ({busy} + {idle} > 0)"


LOST_SHARE: Final = _of_in_use(_idle(LOST, "increase", SHOWN))
STARVED_SHARE: Final = _of_in_use(_time("starved", "increase", SHOWN))
SUSPECTED_SHARE: Final = _of_in_use(_time("suspected", "increase", SHOWN))
LOST_HOURS: Final = (
    f"sum({_idle(LOST, 'increase', SHOWN)}) / 3600"
    f" or sum({_time('observed', 'increase', SHOWN)}) * 0"
)


def _or_nothing_lost(by_cause: str, function: str, window: str) -> str:
    """The same; where no cause has a series yet, 0 as "nothing lost"."""
    none = f"sum({_time('observed', function, window)}) * 0"
    return f'{by_cause} or on() label_replace({none}, "cause", "nothing lost", "", "")'


CULPRIT: Final = _or_nothing_lost(
    f"topk(1, sum by (cause) ({_idle(LOST, 'increase', SHOWN)}) > 0) / 3600", "increase", SHOWN
)

_STARVED: Final = _sum(_time("starved", "rate", RATE))
_SUSPECTED: Final = _sum(_time("suspected", "rate", RATE))
BUSY_BAND: Final = _band(_sum(_time("busy", "rate", RATE)))
STARVED_BAND: Final = _band(_STARVED)
_NOT_PROVED: Final = f"clamp_min({_sum(_idle(LOST, 'rate', RATE))} - {_STARVED}, 0)"
# Long pauses become suspected at once: show no more than was lost in the window.
SUSPECTED_BAND: Final = _band(f"(({_SUSPECTED}) < {_NOT_PROVED} or {_NOT_PROVED})")
# All other losses, including start-up and the wait for the first batch.
OTHER_LOSS_BAND: Final = _band(f"clamp_min({_NOT_PROVED} - ({_SUSPECTED}), 0)")
NOT_IN_USE_BAND: Final = _band(_sum(_idle(NOT_LOST, "rate", RATE)))

CAUSES: Final = _or_nothing_lost(f"sum by (cause) ({_idle(LOST, 'rate', RATE)})", "rate", RATE)

REASONS: Final = (
    f"sum by (reason) ({_time('input_wait', 'rate', RATE)}) or on() "
    f"label_replace(sum({_time('observed', 'rate', RATE)}) * 0, "
    '"reason", "no tagged wait", "", "")'
)
"""Reasons add up to the cause ``input_wait``."""


def _named(per_gpu: str) -> str:
    """Joined with the GPU's index and name, for legends."""
    return f"{per_gpu} * on({ONE_GPU}) group_left(gpu, name) gpumon_gpu_info{{{GPU}}}"


def gap_quantile(quantile: float, window: str) -> str:
    """Quantile of the length of pauses in seconds."""
    buckets = f"rate(gpumon_gpu_idle_gap_seconds_bucket{{{GPU}}}[{window}])"
    return f"histogram_quantile({quantile}, sum by ({ONE_GPU}, le) ({buckets}))"


GAP_MEDIAN: Final = _named(gap_quantile(0.5, RATE))
GAP_P95: Final = _named(gap_quantile(0.95, RATE))
NO_GAP: Final = (
    f"sum({_time('observed', 'rate', RATE)}) * 0"
    f" unless on() sum(rate(gpumon_gpu_idle_gap_seconds_count{{{GPU}}}[{RATE}])) > 0"
)
"""0 while no pause ends; the quantiles have no value then."""


def _per_gpu(series: str) -> str:
    return f"sum by ({ONE_GPU}) ({series})"


_OBSERVED: Final = _per_gpu(_time("observed", "increase", SHOWN))

TABLE: Final = {
    "info": f"max by ({ONE_GPU}, gpu, name) (gpumon_gpu_info{{{GPU}}})",
    "busy": f"{_per_gpu(_time('busy', 'increase', SHOWN))} / {_OBSERVED}",
    "starved": f"{_per_gpu(_time('starved', 'increase', SHOWN))} / {_OBSERVED}",
    "suspected": f"{_per_gpu(_time('suspected', 'increase', SHOWN))} / {_OBSERVED}",
    "lost": f"{_per_gpu(_idle(LOST, 'increase', SHOWN))} or {_OBSERVED} * 0",
    "gap": gap_quantile(0.95, SHOWN),
    "memory": (
        f"sum by ({ONE_GPU}) (gpumon_gpu_memory_used_bytes{{{GPU}}})"
        f" / sum by ({ONE_GPU}) (gpumon_gpu_memory_capacity_bytes{{{GPU}}})"
    ),
    "now": f"max by ({ONE_GPU}) (gpumon_gpu_starved{{{GPU}}})",
}
"""One row for each GPU over the time shown; all but ``info`` have the same three labels."""

FILLING: Final = {
    what: _named(f"gpumon_gpu_{name}_ratio{{{GPU}}}")
    for what, name in (
        ("multiprocessors", "sm_active"),
        ("tensor cores", "tensor_active"),
        ("memory bandwidth", "memory_bandwidth"),
    )
}
"""Gauges of activity, each over the time since the previous reading."""

POWER_SHARE: Final = _named(
    f"(gpumon_gpu_power_watts{{{GPU}}} / on({ONE_GPU}) gpumon_gpu_power_limit_watts{{{GPU}}})"
)


def _held(by: str) -> str:
    return f'gpumon_gpu_throttled{{{GPU},reason=~"{by}"}}'


_BOARD: Final = "hw_slowdown|hw_power_brake_slowdown"
_HEAT: Final = "sw_thermal_slowdown|hw_thermal_slowdown"
_POWER_LIMIT: Final = "sw_power_cap"
_SET: Final = "applications_clocks_setting|sync_boost|display_clock_setting"

HELD_DOWN: Final = _named(
    f"max by ({ONE_GPU}) (4 * {_held(_BOARD)} or 3 * {_held(_HEAT)}"
    f" or 2 * {_held(_POWER_LIMIT)} or {_held(_SET)}"
    f" or gpumon_gpu_performance_state{{{GPU}}} * 0)"
)
"""The worst reason of each GPU: 0 none, 1 configured, 2 power limit, 3 heat, 4 the board itself."""

# A lost GPU has no gpumon_gpu_info, and its XID may be the reason: then its UUID names it.
_XIDS: Final = f"sum by ({ONE_GPU}, xid) (gpumon_gpu_xid_errors_total{{{GPU}}})"
XID_ERRORS: Final = (
    f"{_named(_XIDS)} or on({ONE_GPU}, xid) "
    f'label_replace(label_join({_XIDS}, "gpu", "", "uuid"), "name", "(lost)", "", "")'
    + f' or label_replace(gpumon_gpu_info{{{GPU}}} * 0, "xid", "none", "", "")'
)

# -- each GPU --------------------------------------------------------------------------

_CARD: Final = '"card", " ", "gpu", "name"'
USE_BY_CAUSE: Final = (
    "sum by (card, cause) (label_join("
    + _named(
        f"(label_replace({_per_gpu(_time('busy', 'increase', SHOWN))}, "
        '"cause", "busy", "", "") or '
        f"sum by ({ONE_GPU}, cause) (increase(gpumon_gpu_idle_seconds_total{{{GPU}}}[{SHOWN}])))"
    )
    + f", {_CARD}))"
)
"""Seconds of each GPU, busy and by cause of idle time."""

GAUGES: Final = {
    name: _named(f"gpumon_gpu_{name}{{{GPU}}}")
    for name in (
        "temperature_celsius",
        "power_watts",
        "power_limit_watts",
        "memory_used_bytes",
        "memory_capacity_bytes",
        "sm_clock_hertz",
        "sm_clock_max_hertz",
        "memory_clock_hertz",
    )
}
"""Present values that differ little between two scrapes."""

USE_POWER: Final = f"sum by (use) (rate(gpumon_gpu_use_energy_joules_total{{{GPU}}}[5m]))"
"""Energy counters grow every 30 s."""

THROTTLED: Final = (
    f"sum by (reason) (rate(gpumon_gpu_throttled_seconds_total{{{GPU}}}[{RATE}])) > 0"
    f" or on() label_replace(sum({_time('observed', 'rate', RATE)}) * 0, "
    '"reason", "none", "", "")'
)
"""GPUs with reduced clocks, by reason."""

_ECC: Final = f"sum by ({ONE_GPU}, kind) (gpumon_gpu_ecc_errors_total{{{GPU}}})"
ECC_ERRORS: Final = (
    f'{_named(_ECC)} or label_replace(gpumon_gpu_info{{{GPU}}} * 0, "kind", "not reported", "", "")'
    f" unless on({ONE_GPU}) {_ECC}"
)

_NO_RUN: Final = f'label_replace(gpumon_gpu_info{{{GPU}}} * 0, "run", "no tagged run", "", "")'
RUNS: Final = (
    f"max by (gpu, name, run, job_id) ({_named(f'gpumon_gpu_job_info{{{GPU}}}')}"
    f" or on({ONE_GPU}) {_NO_RUN})"
)
_NO_USER: Final = f'label_replace(gpumon_gpu_info{{{GPU}}} * 0, "user", "none seen", "", "")'
USERS: Final = (
    f"max by (gpu, name, user) ({_named(f'gpumon_gpu_user_info{{{GPU}}}')}"
    f" or on({ONE_GPU}) {_NO_USER})"
)

# -- the daemon ------------------------------------------------------------------------

COLLECTORS: Final = f"min by (collector) (gpumon_collector_success{{{HOST}}})"
COLLECTOR_SECONDS: Final = f"max by (collector) (gpumon_collector_duration_seconds{{{HOST}}})"
TICKS_MISSED: Final = (
    f"sum(rate(gpumon_samples_missed_total{{{HOST}}}[{RATE}]))"
    f" / (sum(rate(gpumon_samples_total{{{HOST}}}[{RATE}]))"
    f" + sum(rate(gpumon_samples_missed_total{{{HOST}}}[{RATE}])) > 0)"
)

# -- variables and annotations ----------------------------------------------------------

HOST_CHOICES: Final = 'label_values(gpumon_build_info{job=~"$job"}, instance)'
HOST_REGEX: Final = r"/^\[?(.*?)\]?(?::[0-9]+)?$/"
GPU_CHOICES: Final = (
    f'query_result(label_join(gpumon_gpu_info{{{HOST}}}, "card", " ", "gpu", "name"))'
)
GPU_CHOICES_REGEX: Final = '/card="(?<text>[^"]*)".*uuid="(?<value>[^"]*)"/'

FIRING: Final = f'ALERTS{{alertname=~"Gpumon.*",alertstate="firing",{HOST}}}'
RUN_STARTS: Final = f"max by (run) (gpumon_training_run_start_timestamp_seconds{{{HOST}}}) * 1000"
"""In milliseconds, as Grafana expects a time."""
