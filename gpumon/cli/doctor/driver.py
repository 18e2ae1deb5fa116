"""The doctor's findings on the driver: versions, clock, permissions, and what its calls cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from gpumon.cli.doctor.driver_answers import DriverAnswers
from gpumon.cli.doctor.findings import BROKEN, DRIVER, MISSING, Finding, finding_of
from gpumon.core.sample import Frame
from gpumon.core.wording import counted, listed, plainly
from gpumon.sources.installed import DriverFiles
from gpumon.sources.nvml.codes import NO_PERMISSION
from gpumon.sources.nvml.fields.table import ALWAYS_ON, BUDGET, NvmlField

_SINCE_BOOT: Final = "time since boot (CLOCK_MONOTONIC, or CLOCK_BOOTTIME, which counts sleep)"
_CLOCKS: Final = {
    "realtime": "CLOCK_REALTIME: they jump when the wall clock is set, and gpumon converts them",
    "monotonic": _SINCE_BOOT,
    "boottime": _SINCE_BOOT,
    "estimated": "no clock of this host: their distance is estimated, some ms off",
}
_DEAREST: Final = 4
_SLOW_INIT_S: Final = 1.0
_found = partial(finding_of, DRIVER)


def driver_findings(
    files: DriverFiles, driver: DriverAnswers | None, frames: Sequence[Frame]
) -> Iterator[Finding]:
    """All findings on the driver; ``driver`` is ``None`` where it could not be read."""
    if driver is not None:
        versions = (
            driver.driver_version,
            driver.nvml_version and f"NVML {driver.nvml_version}",
            driver.cuda_version and f"CUDA up to {driver.cuda_version}",
        )
        known = ", ".join(version for version in versions if version)
        yield _found("driver", known or "it does not report its version")
        if driver.init_s > _SLOW_INIT_S:
            yield _found("start", f"opening NVML took {driver.init_s:.1f} s", status=MISSING)
    if files.module_version is None:
        yield _found("kernel module", "/proc shows none that is loaded", status=MISSING)
    else:
        yield _found("kernel module", files.module_version)
    yield _permissions(files)
    if files.profiling_needs_root is not None:
        yield _profiling(driver, needs_root=files.profiling_needs_root)
    if driver is not None and driver.gpus:
        if driver.stamp_clock is None:
            yield _found("sample stamps", "no sample shows which clock they count", status=MISSING)
        else:
            yield _found("sample stamps", f"they count {_CLOCKS[driver.stamp_clock]}")
        yield _cost(driver, frames)


def _permissions(files: DriverFiles) -> Finding:
    name = "device files"
    if not files.nodes:
        return _found(name, "there is no /dev/nvidia* here", status=MISSING)
    if files.refused:
        return _found(
            name,
            f"this user may not use {listed(files.refused)}",
            status=BROKEN,
            fix="join the group that owns them, if they have one (ls -l), or sudo chmod a+rw "
            + " ".join(files.refused),
        )
    return _found(name, f"{listed(files.nodes)}: this user may use them")


def _profiling(driver: DriverAnswers | None, *, needs_root: bool) -> Finding:
    """Who may read performance counters; a matter only where GPM was refused for that."""
    who = "root only" if needs_root else "everybody"
    detail = f"counters may be read by {who} (RmProfilingAdminOnly)"
    gpus = () if driver is None else driver.gpus
    refusals = [gpu.field("activity").refusal for gpu in gpus if gpu.fields]
    if not needs_root or NO_PERMISSION not in [code for _, code in filter(None, refusals)]:
        return _found("profiling", detail)
    return _found(
        "profiling",
        detail,
        status=MISSING,
        fix="let everybody read them: put `options nvidia NVreg_RestrictProfilingToAdminUsers=0` "
        "into a file of /etc/modprobe.d, then reload the driver or reboot",
    )


def _cost(driver: DriverAnswers, frames: Sequence[Frame]) -> Finding:
    """What all fields cost at their usual periods, ticks at 1 Hz, with the dearest calls."""
    shares = Counter[str]()
    for gpu in driver.gpus:
        for field in gpu.fields:
            shares.update(field.seconds_by_call())
    share = shares.total()
    gpus = counted(len(driver.gpus), "GPU", "GPUs")
    ms, percent = plainly(1000 * share, 2), plainly(100 * share, 2)
    calls = [f"{name} {plainly(1000 * part, 2)}" for name, part in shares.most_common(_DEAREST)]
    detail = f"{ms} ms of each second for {gpus} at 1 Hz ({percent} %): {', '.join(calls)}"
    spent_s = sum(call[1] for call in frames[-1].call_seconds) if frames else 0.0
    if spent_s:
        readings = counted(len(frames), "reading", "readings")
        detail += f"; {plainly(spent_s * 1000, 2)} ms in the {readings} here"
    if share <= BUDGET:
        return _found("time in NVML", detail, share=share)
    return _found(
        "time in NVML",
        f"{detail}; more than {plainly(1000 * BUDGET, 2)} ms",
        status=MISSING,
        fix=_without_the_dearest(driver),
        share=share,
    )


def _without_the_dearest(driver: DriverAnswers) -> str | None:
    costs: defaultdict[NvmlField, float] = defaultdict(float)
    for gpu in driver.gpus:
        for field in gpu.fields:
            if field.field.name != ALWAYS_ON and field.seconds_per_second:
                costs[field.field] += field.seconds_per_second
    if not costs:
        return None
    dearest = max(costs, key=costs.__getitem__)
    if dearest.opt_in:
        return f"leave out what costs most: start gpumon serve without --nvml-on {dearest.name}"
    return f"leave out what costs most: gpumon serve --nvml-off {dearest.name}"
