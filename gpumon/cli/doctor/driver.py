"""What the doctor says of the driver: versions, clock, permissions, and what asking it costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from gpumon.cli.doctor.findings import BROKEN, DRIVER, MISSING, Finding, finding_of
from gpumon.core.sample import Frame
from gpumon.core.wording import counted, listed, plainly
from gpumon.sources.installed import DriverFiles
from gpumon.sources.nvml.codes import NO_PERMISSION
from gpumon.sources.nvml.fields.table import ALWAYS_ON, NvmlField
from gpumon.sources.nvml.probe.probed import ProbedDriver

_SINCE_BOOT: Final = "time since boot (CLOCK_MONOTONIC, or CLOCK_BOOTTIME, which counts sleep)"
_CLOCK_WORDS: Final = {
    "realtime": "CLOCK_REALTIME: they jump when the wall clock is set, and gpumon converts them",
    "monotonic": _SINCE_BOOT,
    "boottime": _SINCE_BOOT,
    "estimated": "no clock of this host: their distance is estimated, some ms off",
}
_MUCH: Final = 0.01
"""Seconds inside the driver for each second, from which on it may be felt."""
_SLOW_INIT_S: Final = 1.0
_found = partial(finding_of, DRIVER)


def driver_findings(
    files: DriverFiles, probed: ProbedDriver | None, frames: Sequence[Frame]
) -> Iterator[Finding]:
    """All that is to say of the driver; ``probed`` is ``None`` where it could not be asked."""
    if probed is not None:
        versions = (
            probed.driver_version,
            probed.nvml_version and f"NVML {probed.nvml_version}",
            probed.cuda_version and f"CUDA up to {probed.cuda_version}",
        )
        said = ", ".join(word for word in versions if word)
        yield _found("driver", said or "it does not say which")
        if probed.init_s > _SLOW_INIT_S:
            yield _found("start", f"opening NVML took {probed.init_s:.1f} s", status=MISSING)
    if files.module_version is None:
        said = "none is loaded here, as far as /proc tells"
        yield _found("kernel module", said, status=MISSING)
    else:
        yield _found("kernel module", files.module_version)
    yield _permissions(files)
    if files.profiling_needs_root is not None:
        yield _profiling(probed, needs_root=files.profiling_needs_root)
    if probed is not None and probed.gpus:
        if probed.stamp_clock is None:
            said = "no sample told which clock they count"
            yield _found("sample stamps", said, status=MISSING)
        else:
            yield _found("sample stamps", f"they count {_CLOCK_WORDS[probed.stamp_clock]}")
        yield _cost(probed, frames)


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


def _profiling(probed: ProbedDriver | None, *, needs_root: bool) -> Finding:
    """Who may read performance counters; a matter only where GPM was refused for that."""
    who = "root only" if needs_root else "everybody"
    said = f"counters may be read by {who} (RmProfilingAdminOnly)"
    fields = [gpu.field("activity") for gpu in (probed.gpus if probed else ())]
    troubles = [one.trouble for one in fields if one is not None]
    if not needs_root or all(one is None or one.code != NO_PERMISSION for one in troubles):
        return _found("profiling", said)
    return _found(
        "profiling",
        said,
        status=MISSING,
        fix="let everybody read them: put `options nvidia NVreg_RestrictProfilingToAdminUsers=0` "
        "into a file of /etc/modprobe.d, then reload the driver or reboot",
    )


def _cost(probed: ProbedDriver, frames: Sequence[Frame]) -> Finding:
    """What all of it costs at the default cadences, ticks at 1 Hz."""
    share = sum(gpu.seconds_per_second for gpu in probed.gpus)
    gpus = counted(len(probed.gpus), "GPU", "GPUs")
    ms, percent = plainly(1000 * share, 2), plainly(100 * share, 2)
    said = f"{ms} ms of each second for {gpus} at 1 Hz ({percent} %)"
    spent_s = sum(one[1] for one in frames[-1].call_seconds) if frames else 0.0
    if spent_s:
        said += (
            f"; {plainly(spent_s * 1000, 2)} ms in the {counted(len(frames), 'look', 'looks')} here"
        )
    if share <= _MUCH:
        return _found("time in NVML", said, share=share)
    return _found(
        "time in NVML",
        f"{said}: trainings may feel that",
        status=MISSING,
        fix=_without_the_dearest(probed),
        share=share,
    )


def _without_the_dearest(probed: ProbedDriver) -> str | None:
    """How to leave out the field that costs most, of those that can be switched off."""
    costs: defaultdict[NvmlField, float] = defaultdict(float)
    for gpu in probed.gpus:
        for one in gpu.fields:
            if one.wanted and one.field.name != ALWAYS_ON:
                costs[one.field] += one.seconds_per_second or 0.0
    if not costs:
        return None
    dearest = max(costs, key=costs.__getitem__)
    if dearest.opt_in:
        return f"leave out what costs most: start gpumon serve without --nvml-on {dearest.name}"
    return f"leave out what costs most: gpumon serve --nvml-off {dearest.name}"
