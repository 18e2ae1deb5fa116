"""The PromQL of the fleet dashboard.

It reads recorded series of ``prometheus/rules.yml``, ``ALERTS`` and ``up``, and never a series of
one GPU. A recorded series holds the seconds or joules of one tile of time, five minutes or an hour.
Tiles do not overlap, so they add up. ``${tile}`` is chosen by the time shown: up to one day ``5m``,
beyond that ``1h``. A missing tile is missing coverage: averages leave it out, sums are too small by
it, and the panel of the coverage shows by how much.
"""

from __future__ import annotations

from typing import Final

HOST_OF_INSTANCE: Final = (
    r'"host", "$1$2$3", "instance", "\\[(.+)\\](?::[0-9]+)?|([^:]+)(?::[0-9]+)?|(.+)"'
)
"""As in ``prometheus/rules.yml``: the instance without its port."""
SHOWN: Final = "$__range"
STEP: Final = "$__interval"
TILE: Final = "${tile}"
TILE_SECONDS: Final = "(300 + 3300 * ($__range_s > bool 86400))"
"""Length of the tiles that ``${tile}`` names."""

TILE_CHOICES: Final = (
    'query_result(label_replace(vector($__range_s) > 86400, "tile", "1h", "", "") or on() '
    'label_replace(vector($__range_s), "tile", "5m", "", ""))'
)
TILE_REGEX: Final = '/tile="([^"]+)"/'
WORST: Final = 10


def _tiles(name: str, selector: str = "") -> str:
    return f"{name}:increase{TILE}{selector}"


def _shown(name: str, selector: str = "") -> str:
    """Each series, added up over the time shown."""
    return f"sum_over_time({_tiles(name, selector)}[{SHOWN}])"


def _mean_gpus(name: str) -> str:
    """Each series as a number of GPUs: 1 is one GPU all of the time. Without tiles no value."""
    return f"avg_over_time({_tiles(name)}[{STEP}]) / {TILE_SECONDS}"


def _or_zero(series: str, like: str) -> str:
    """0 where ``series`` has no value and ``like`` has."""
    return f"{series} or on() {like} * 0"


_SEEN: Final = f"sum({_shown('gpumon:gpu_observed_seconds')})"
_LOST: Final = f"(sum({_shown('cause:gpumon_gpu_lost_seconds')}) or on() {_SEEN} * 0)"
_BUSY: Final = f"sum({_shown('gpumon:gpu_busy_seconds')})"
_USED: Final = f"({_LOST} + {_BUSY} > 0)"


def _if_used(value: str) -> str:
    """The value; -1 if GPUs were observed and none was in use; nothing without tiles."""
    return f"({value}) and on() {_USED} or on() ({_SEEN} * 0 - 1 unless on() {_USED})"


# -- figures ------------------------------------------------------------------------

_TARGETS: Final = 'up{job=~"$job"}'
HOSTS_DOWN: Final = f"count({_TARGETS} == 0) or on() count({_TARGETS}) * 0"

# Of the latest tile of five minutes, whatever time is shown.
GPUS: Final = "sum(last_over_time(gpumon:gpus:count5m[10m]))"
HOSTS: Final = "sum(last_over_time(gpumon:hosts:count5m[10m]))"

TROUBLE: Final = "|".join(
    (
        "GpumonGPUMissing",
        "GpumonGPUXidErrors",
        "GpumonGPUEccErrors",
        "GpumonGPUThrottled",
        "GpumonSamplesStale",
    )
)
GPUS_IN_TROUBLE: Final = _or_zero(
    f'count(count by (instance, uuid) (ALERTS{{alertname=~"{TROUBLE}",alertstate="firing"}}))', GPUS
)

LOST_HOURS: Final = _if_used(f"{_LOST} / 3600")
LOST_SHARE: Final = _if_used(f"{_LOST} / {_USED}")
LOST_PRICE: Final = _if_used(f"{_LOST} / 3600 * $price")

_LOST_KWH: Final = f"""sum({_shown("use:gpumon_gpu_use_energy_joules", '{use="lost"}')}) / 3.6e6"""
LOST_KWH: Final = _if_used(_LOST_KWH)
LOST_KWH_PRICE: Final = _if_used(f"{_LOST_KWH} * $kwh_price")
LOST_CO2: Final = _if_used(f"{_LOST_KWH} * $co2")

COVERAGE: Final = (
    f"{_SEEN} / on() (avg_over_time({_tiles('gpumon:gpu_expected_seconds')}[{SHOWN}])"
    f" * $__range_s / {TILE_SECONDS})"
)

# -- over time ------------------------------------------------------------------------

_SETTLED_NOW: Final = " + ".join(
    (
        f"sum({_mean_gpus('gpumon:gpu_busy_seconds')})",
        f"(sum({_mean_gpus('cause:gpumon_gpu_lost_seconds')}) or vector(0))",
        f"(sum({_mean_gpus('gpumon:gpu_not_in_use_seconds')}) or vector(0))",
    )
)


def _band(name: str) -> str:
    """A share of the settled time: the bands add up to 1 at every point."""
    return f"(sum({_mean_gpus(name)}) or vector(0)) / on() ({_SETTLED_NOW} > 0)"


BUSY_BAND: Final = _band("gpumon:gpu_busy_seconds")
LOST_BAND: Final = _band("cause:gpumon_gpu_lost_seconds")
NOT_IN_USE_BAND: Final = _band("gpumon:gpu_not_in_use_seconds")

_NONE_NOW: Final = f"sum({_mean_gpus('gpumon:gpu_observed_seconds')}) * 0"
CAUSES: Final = (
    f"sum by (cause) ({_mean_gpus('cause:gpumon_gpu_lost_seconds')}) > 0"
    f' or on() label_replace({_NONE_NOW}, "cause", "nothing lost", "", "")'
)
REASONS: Final = (
    f"sum by (reason) ({_mean_gpus('host_reason:gpumon_gpu_input_wait_seconds')}) > 0"
    f' or on() label_replace({_NONE_NOW}, "reason", "no tagged wait", "", "")'
)
COVERAGE_NOW: Final = (
    f"avg_over_time({_tiles('gpumon:gpu_observed_seconds')}[{STEP}])"
    f" / on() avg_over_time({_tiles('gpumon:gpu_expected_seconds')}[{STEP}])"
)
TILES_NOW: Final = (
    f"count_over_time({_tiles('gpumon:gpu_observed_seconds')}[{STEP}])"
    f" * {TILE_SECONDS} / ($__interval_ms / 1000)"
)

# -- the worst ten --------------------------------------------------------------------


def _worst(key: str, lost: str, busy: str, none: str = "nothing lost") -> dict[str, str]:
    """Queries of a table with one row for each of the worst ten.

    Args:
        key: The label of a row.
        lost: Recorded seconds by key and cause, with a selector.
        busy: Recorded seconds by key, with a selector.
        none: What the only row says if ``busy`` has no series.
    """
    by_key = f"sum by ({key}) ({lost})"
    by_key_busy = f"sum by ({key}) ({busy})"
    worst = f"topk({WORST}, {by_key} > 0)"
    return {
        "lost": (
            f"{worst} / 3600"
            f' or on() label_replace(sum({busy}) * 0, "{key}", "nothing lost", "", "")'
            f' or on() label_replace({_SEEN} * 0, "{key}", "{none}", "", "")'
        ),
        "share": f"{worst} / on({key}) ({by_key} + on({key}) ({by_key_busy} or {by_key} * 0))",
        "price": f"{worst} / 3600 * $price",
        "cause": f"topk by ({key}) (1, sum by ({key}, cause) ({lost})) and on({key}) {worst}",
    }


WORST_HOSTS: Final = _worst(
    "host", _shown("host_cause:gpumon_gpu_lost_seconds"), _shown("host:gpumon_gpu_busy_seconds")
)
WORST_RUNS: Final = _worst(
    "run",
    _shown("run_cause:gpumon_training_gpu_lost_seconds", '{run!=""}'),
    _shown("run:gpumon_training_gpu_busy_seconds", '{run!=""}'),
    "no tagged run at work",
)
WORST_USERS: Final = _worst(
    "user",
    _shown("user_cause:gpumon_user_gpu_lost_seconds", '{user!=""}'),
    _shown("user:gpumon_user_gpu_busy_seconds", '{user!=""}'),
    "no user at work",
)

# -- alerts ---------------------------------------------------------------------------

_FIRING: Final = 'ALERTS{alertname=~"Gpumon.*",alertstate="firing"}'
FIRING: Final = (
    "max by (alertname, severity, host, run, user, gpu)"
    f" (label_replace({_FIRING}, {HOST_OF_INSTANCE}))"
    f' or on() label_replace({HOSTS} * 0, "alertname", "none", "", "")'
)
FIRING_NOW: Final = f"sum by (alertname) ({_FIRING})"
