"""What the doctor says of each GPU, field by field."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from gpumon.cli.doctor.findings import BROKEN, MISSING, OFF, OK, SOURCE, Finding
from gpumon.core.clock import seconds
from gpumon.core.device.driver_codes import UNREADABLE
from gpumon.core.device.troubles import ErrorWatch, errors_of, throttled_now
from gpumon.core.sample import ActivitySample, Frame, GpuSample
from gpumon.core.wording import counted, in_gibibytes, listed
from gpumon.errors import GpumonError
from gpumon.sources.nvml.codes import NO_PERMISSION, NOT_SUPPORTED
from gpumon.sources.nvml.fields.table import field_called
from gpumon.sources.nvml.probe.probed import ProbedCall, ProbedDriver, ProbedField, ProbedGpu

_LOOK: Final = "see nvidia-smi and dmesg"
_FIXES: Final = {
    13: "install a newer NVIDIA driver, which has more to ask",
    25: "install a newer NVIDIA driver, which has more to ask",
    **{code: UNREADABLE[code].advice for code in (4, 15, 16, 17, 999)},
}
_PERSISTENCE: Final = (
    "sudo nvidia-smi -pm 1, or run nvidia-persistenced: else the driver is loaded anew, which "
    "takes seconds, whenever nobody uses the GPU, and its counters begin again"
)
_UTILISATION: Final = field_called("utilization").title
_OF_THE_BOARD: Final = frozenset({"power", "temperature", "sm clock", "energy"})
"""What a MIG instance shares with the rest of its GPU."""


def source_broken(error: GpumonError) -> Finding:
    """What is said where the source cannot be read at all."""
    what, _, fix = str(error).partition(": ")
    return Finding(what=SOURCE, status=BROKEN, detail=what, fix=fix or _LOOK)


def gpu_findings(
    word: str, frames: Sequence[Frame], probed: ProbedDriver | None
) -> Iterator[Finding]:
    """All that is to say of the source and its GPUs; ``probed``: where it is a driver."""
    gpus = frames[-1].gpus
    if not gpus:
        yield Finding(
            what=SOURCE,
            status=BROKEN,
            detail=f"{word} names no GPU",
            fix="check that the container or cgroup may see the GPUs (nvidia-smi -L)",
        )
        return
    readable = sum(gpu.error is None for gpu in gpus)
    yield Finding(
        what=SOURCE,
        status=OK if readable else BROKEN,
        detail=f"{word}: {_how_many(gpus)}, {readable} can be read",
    )
    yield from _troubles(word, frames)
    of_driver = () if probed is None else probed.gpus
    asked = {one.uuid: one for one in of_driver}
    for gpu in gpus:
        uuid = gpu.device.uuid
        heard = [g for frame in frames for g in frame.gpus if g.device.uuid == uuid]
        for finding in _of_one(gpu, heard, asked.get(uuid)):
            yield replace(finding, gpu=gpu.device.label)
    yield from _never_seen(gpus, of_driver)


def _how_many(gpus: Sequence[GpuSample]) -> str:
    parts = sum(gpu.device.parent_uuid is not None for gpu in gpus)
    said = [(len(gpus) - parts, "GPU", "GPUs"), (parts, "MIG instance", "MIG instances")]
    return " and ".join(counted(*one) for one in said if one[0])


def _never_seen(gpus: Sequence[GpuSample], probed: Sequence[ProbedGpu]) -> Iterator[Finding]:
    """GPUs that the driver lists and the source has not got, because they were lost before."""
    known = {gpu.device.index for gpu in gpus}
    for one in probed:
        if one.lost is not None and one.index not in known:
            what, _, fix = one.lost.partition(": ")
            # A container is kept from the GPUs of others in this way: that breaks nothing.
            status = MISSING if one.lost_code == NO_PERMISSION else BROKEN
            yield Finding(status=status, detail=what, fix=fix or _LOOK, gpu=str(one.index))


def _troubles(word: str, frames: Sequence[Frame]) -> Iterator[Finding]:
    told = [frame.trouble for frame in frames if frame.trouble is not None]
    if not told:
        return
    if word.startswith("follow:"):
        yield Finding(
            what="busy spans",
            status=MISSING,
            detail=told[-1],
            fix="let the training write its busy spans to that file, a line as each span ends",
        )
        return
    # "GPU 2: the GPU is lost: reset it". Who cannot be read has a line of its own.
    whose, _, trouble = told[-1].partition(": ")
    readable = {f"GPU {gpu.device.label}" for gpu in frames[-1].gpus if gpu.error is None}
    if whose in readable or not whose.startswith("GPU "):
        what, _, fix = trouble.partition(": ")
        detail = f"{whose}: {what}"
        yield Finding(what="trouble", status=MISSING, detail=detail, fix=fix or None)


def _of_one(gpu: GpuSample, heard: list[GpuSample], asked: ProbedGpu | None) -> Iterator[Finding]:
    yield _identity(gpu)
    if gpu.error is not None and (asked is None or asked.lost is not None):
        return
    yield from _in_trouble(heard)
    yield _utilisation(heard, asked)
    if asked is None:
        yield from _told_fields(heard)
        return
    yield from (_field(one, asked) for one in asked.fields if one.field.name != "utilization")
    yield _samples(asked)
    yield _mig(asked)


def _identity(gpu: GpuSample) -> Finding:
    device = gpu.device
    if gpu.error is not None:
        what, _, fix = gpu.error.partition(": ")
        return Finding(status=BROKEN, detail=what, fix=fix or _LOOK)
    known = (device.name, device.uuid, device.driver_version and f"driver {device.driver_version}")
    return Finding(detail=", ".join(word for word in known if word))


def _in_trouble(heard: list[GpuSample]) -> Iterator[Finding]:
    """Memory errors since the driver was loaded, and what slows the GPU down just now."""
    log = ErrorWatch()
    for sample in heard:
        log.hear(sample, 0)
    now = heard[-1]
    for one in (*errors_of(now.xid_errors, log.errors, 0), *throttled_now(now.details, None)):
        yield Finding(what=one.word, status=BROKEN, detail=one.text, fix=one.advice)


def _utilisation(heard: list[GpuSample], asked: ProbedGpu | None) -> Finding:
    what, field = _UTILISATION, None if asked is None else asked.field("utilization")
    prices = _prices(field) if field else {"period_seconds": 0.0}
    windows = [sample for one in heard for sample in one.busy]
    if windows:
        length_s = sorted(seconds(sample.end_ns - sample.start_ns) for sample in windows)
        middle_s = length_s[len(length_s) // 2]
        detail = (
            f"{len(windows)} samples, {middle_s * 1000:.0f} ms each: shorter pauses show as a level"
        )
        return Finding(what=what, detail=detail, **prices)
    fix = None
    if heard[-1].device.mig_enabled or (asked is not None and asked.mig_enabled):
        detail = "with MIG on, only its instances have one"
    elif asked is not None and field is not None and field.trouble is not None:
        detail, fix = _refusal(field, asked), _fix(field.trouble, "utilization")
    else:
        detail = "no sample within two seconds"
    return Finding(what=what, status=MISSING, detail=detail, fix=fix, **prices)


# -- as the source tells them ----------------------------------------------------


def _told_fields(heard: list[GpuSample]) -> Iterator[Finding]:
    device = heard[-1].device
    of_the_board = []
    for what, (told_as, words) in _TOLD.items():
        values = [value for one in heard if (value := getattr(one, told_as)) is not None]
        said = words(values[-1]) if values else None
        if said is not None:
            yield Finding(what=what, detail=said)
        elif device.mig_index is None or what not in _OF_THE_BOARD:
            yield Finding(what=what, status=MISSING, detail="this source does not say")
        else:
            of_the_board.append(what)
    if of_the_board:
        said = f"{listed(of_the_board)}: of the whole board, see GPU {device.index}"
        yield Finding(what="not its own", status=OFF, detail=said)


def _active(activity: ActivitySample) -> str | None:
    ratio = activity.sm_active_ratio
    return None if ratio is None else f"SM {100 * ratio:.0f} %"


_TOLD: Final[dict[str, tuple[str, Callable[[Any], str | None]]]] = {
    "memory": ("memory_used_bytes", lambda n: f"{in_gibibytes(n)} used"),
    "power": ("power_watts", lambda watts: f"{watts:.0f} W"),
    "temperature": ("temperature_celsius", lambda celsius: f"{celsius:.0f} C"),
    "sm clock": ("sm_clock_hertz", lambda hertz: f"{hertz / 1e6:.0f} MHz"),
    "energy": ("energy_joules", lambda joules: f"{joules:.0f} J"),
    "activity": ("activity", _active),
    "processes": ("processes", lambda found: f"{len(found)} now"),
}
"""By its name here: what it is called in a sample, and how it is said."""


# -- as the driver answers -------------------------------------------------------


def _prices(field: ProbedField) -> dict[str, Any]:
    return {
        "period_seconds": field.field.period_s,
        "reading_microseconds": field.reading_us,
        "seconds_per_second": field.seconds_per_second,
    }


def _field(field: ProbedField, gpu: ProbedGpu) -> Finding:
    what = field.field.title
    prices = _prices(field)
    if not field.wanted:
        said = _opt_in(field) if field.field.opt_in else "switched off: --nvml-off names it"
        return Finding(what=what, status=OFF, detail=said, **prices)
    if field.works:
        status, detail, fix = OK, field.value or field.field.text, None
        if field.field.name == "persistence_mode" and gpu.persistence_mode is False:
            status, fix = MISSING, _PERSISTENCE
        if field.field.name == "events" and gpu.event_types:
            detail = ", ".join(gpu.event_types)
        return Finding(what=what, status=status, detail=detail, fix=fix, **prices)
    call = field.trouble
    fix = None if call is None else _fix(call, field.field.name)
    return Finding(what=what, status=MISSING, detail=_refusal(field, gpu), fix=fix, **prices)


def _refusal(field: ProbedField, gpu: ProbedGpu) -> str:
    call = field.trouble
    if call is None or call.code is None:
        return "it was not asked"
    if field.field.name == "activity" and gpu.has_gpm is False and call.code == NOT_SUPPORTED:
        return f"no GPM on this board: Hopper and later have it ({call.answer})"
    return f"{call.meaning}: {call.function} answers {call.answer}"


def _fix(call: ProbedCall, field: str) -> str | None:
    if call.code == NO_PERMISSION and field == "activity":
        return "run gpumon as root: this driver may let nobody else read performance counters"
    return _FIXES.get(call.code or 0)


def _opt_in(field: ProbedField) -> str:
    asked = field.field
    price = "its price is not known"
    if asked.quoted_us is not None:
        us = asked.quoted_us
        took = f"{us / 1000:.0f} ms" if us >= 1000 else f"{us:.0f} us"
        price = f"{took} are quoted{asked.quoted_where}"
    return f"opt-in (--nvml-on {asked.name}): {price}"


def _samples(gpu: ProbedGpu) -> Finding:
    """The rings that the driver keeps, each with its cadence and its depth."""
    kept = [
        f"{ring.name.replace('_', ' ')} {ring.count} of {ring.cadence_s * 1000:.0f} ms"
        for ring in gpu.rings
        if ring.count and ring.cadence_s is not None
    ]
    if not kept:
        why = next((ring.answer for ring in gpu.rings if ring.answer), "they are empty")
        return Finding(what="samples kept", status=MISSING, detail=f"none: {why}")
    return Finding(what="samples kept", detail="; ".join(kept))


def _mig(gpu: ProbedGpu) -> Finding:
    words = {None: "this board does not have it", False: "off"}
    said = words.get(gpu.mig_enabled) or (
        f"on, {counted(gpu.mig_instances, 'instance', 'instances')}"
    )
    return Finding(what="mig", detail=said)
