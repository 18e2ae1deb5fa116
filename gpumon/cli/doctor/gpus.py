"""The doctor's findings on each GPU, field by field."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from gpumon.cli.doctor.driver_answers import DriverAnswers, FieldAnswer, GpuAnswers
from gpumon.cli.doctor.field_values import value_of
from gpumon.cli.doctor.findings import BROKEN, MISSING, OFF, OK, SOURCE, Finding
from gpumon.core.clock import seconds
from gpumon.core.device.driver_codes import UNREADABLE
from gpumon.core.device.troubles import ErrorWatch, errors_of, throttled_now
from gpumon.core.sample import Frame, GpuSample
from gpumon.core.wording import counted, listed
from gpumon.errors import GpumonError
from gpumon.sources.nvml.codes import NO_PERMISSION, NOT_SUPPORTED, SUCCESS, code_name, meaning_of
from gpumon.sources.nvml.fields.table import PROCESS_SHARES, field_called

_READ_LOGS: Final = "see nvidia-smi and dmesg"
_NEWER_DRIVER: Final = "install a newer NVIDIA driver, which has more values"
_FIXES: Final = {
    13: _NEWER_DRIVER,
    25: _NEWER_DRIVER,
    **{code: UNREADABLE[code].advice for code in (4, 15, 16, 17, 999)},
}
_PERSISTENCE: Final = (
    "sudo nvidia-smi -pm 1, or run nvidia-persistenced: else the driver is loaded again, which "
    "takes seconds, whenever the GPU is unused, and its counters restart"
)
_UTILISATION: Final = field_called("utilization").title
_OF_ANY_SOURCE: Final = (
    "memory", "power", "temperature", "clocks", "energy", "activity", "processes"
)  # fmt: skip
_OF_THE_BOARD: Final = frozenset({"power", "temperature", "clocks", "energy"})
"""What a MIG instance shares with the rest of its GPU."""


def source_broken(error: GpumonError) -> Finding:
    """The finding where the source cannot be read at all."""
    what, _, fix = str(error).partition(": ")
    return Finding(what=SOURCE, status=BROKEN, detail=what, fix=fix or _READ_LOGS)


def gpu_findings(
    source: str, frames: Sequence[Frame], driver: DriverAnswers | None
) -> Iterator[Finding]:
    """All findings on the source and its GPUs; ``driver`` where the source is one."""
    gpus = frames[-1].gpus
    if not gpus:
        yield Finding(
            what=SOURCE,
            status=BROKEN,
            detail=f"{source} names no GPU",
            fix="check that the container or cgroup may see the GPUs (nvidia-smi -L)",
        )
        return
    readable = sum(gpu.error is None for gpu in gpus)
    yield Finding(
        what=SOURCE,
        status=OK if readable else BROKEN,
        detail=f"{source}: {_how_many(gpus)}, {readable} can be read",
    )
    yield from _troubles(source, frames)
    answers = () if driver is None else driver.gpus
    by_uuid = {answer.uuid: answer for answer in answers}
    for gpu in gpus:
        uuid = gpu.device.uuid
        samples = [
            sample for frame in frames for sample in frame.gpus if sample.device.uuid == uuid
        ]
        for finding in _gpu(samples, by_uuid.get(uuid)):
            yield replace(finding, gpu=gpu.device.label)
    yield from _never_seen(gpus, answers)


def _how_many(gpus: Sequence[GpuSample]) -> str:
    instances = sum(gpu.device.parent_uuid is not None for gpu in gpus)
    counts = [
        (len(gpus) - instances, "GPU", "GPUs"),
        (instances, "MIG instance", "MIG instances"),
    ]
    return " and ".join(counted(*pair) for pair in counts if pair[0])


def _never_seen(gpus: Sequence[GpuSample], answers: Sequence[GpuAnswers]) -> Iterator[Finding]:
    """GPUs that the driver lists and the source has not got, because they were lost before."""
    known = {gpu.device.index for gpu in gpus}
    for answer in answers:
        if answer.lost is not None and answer.index not in known:
            what, _, fix = answer.lost.partition(": ")
            # A container is kept from the GPUs of others in this way: that breaks nothing.
            status = MISSING if answer.lost_code == NO_PERMISSION else BROKEN
            yield Finding(status=status, detail=what, fix=fix or _READ_LOGS, gpu=str(answer.index))


def _troubles(source: str, frames: Sequence[Frame]) -> Iterator[Finding]:
    troubles = [frame.trouble for frame in frames if frame.trouble is not None]
    if not troubles:
        return
    if source.startswith("follow:"):
        yield Finding(
            what="busy spans",
            status=MISSING,
            detail=troubles[-1],
            fix="let the training script append its busy spans to that file, a line each",
        )
        return
    # "GPU 2: the GPU is lost: reset it". A GPU that cannot be read has a line of its own.
    whose, _, trouble = troubles[-1].partition(": ")
    readable = {f"GPU {gpu.device.label}" for gpu in frames[-1].gpus if gpu.error is None}
    if whose in readable or not whose.startswith("GPU "):
        what, _, fix = trouble.partition(": ")
        detail = f"{whose}: {what}"
        yield Finding(what="trouble", status=MISSING, detail=detail, fix=fix or None)


def _gpu(samples: Sequence[GpuSample], answers: GpuAnswers | None) -> Iterator[Finding]:
    newest = samples[-1]
    yield _identity(newest)
    if newest.error is not None and (answers is None or answers.lost is not None):
        return
    yield from _in_trouble(samples)
    yield _utilisation(samples, answers)
    if answers is None:
        yield from _fields_of_any_source(samples)
        return
    for field in answers.fields:
        if field.field.name != "utilization":
            yield _field(field, answers, newest)
    yield _samples_kept(answers)
    yield _mig(answers)


def _identity(gpu: GpuSample) -> Finding:
    device = gpu.device
    if gpu.error is not None:
        what, _, fix = gpu.error.partition(": ")
        return Finding(status=BROKEN, detail=what, fix=fix or _READ_LOGS)
    known = (device.name, device.uuid, device.driver_version and f"driver {device.driver_version}")
    return Finding(detail=", ".join(word for word in known if word))


def _in_trouble(samples: Sequence[GpuSample]) -> Iterator[Finding]:
    log = ErrorWatch()
    for sample in samples:
        log.observe(sample, 0)
    now = samples[-1]
    for trouble in (*errors_of(now.xid_errors, log.errors, 0), *throttled_now(now.details, None)):
        yield Finding(
            what=trouble.short_name, status=BROKEN, detail=trouble.text, fix=trouble.advice
        )


def _utilisation(samples: Sequence[GpuSample], answers: GpuAnswers | None) -> Finding:
    field = None if answers is None else answers.field("utilization")
    prices = {"period_seconds": 0.0} if field is None else _prices(field)
    windows = [sample for gpu_sample in samples for sample in gpu_sample.busy]
    if windows:
        lengths_s = sorted(seconds(sample.end_ns - sample.start_ns) for sample in windows)
        ms = 1000 * lengths_s[len(lengths_s) // 2]
        detail = f"{len(windows)} samples, {ms:.0f} ms each: shorter pauses show as a level"
        return Finding(what=_UTILISATION, detail=detail, **prices)
    fix = None
    if samples[-1].device.mig_enabled:
        detail = "with MIG on, only its instances have one"
    elif answers is not None and field is not None and field.refusal is not None:
        detail, fix = _refusal(field, answers), _fix(field)
    else:
        detail = "no sample within two seconds"
    return Finding(what=_UTILISATION, status=MISSING, detail=detail, fix=fix, **prices)


def _fields_of_any_source(samples: Sequence[GpuSample]) -> Iterator[Finding]:
    device = samples[-1].device
    shared = []
    for name in _OF_ANY_SOURCE:
        what = field_called(name).title
        values = [value for sample in samples if (value := value_of(name, sample)) is not None]
        if values:
            yield Finding(what=what, detail=values[-1])
        elif device.mig_index is None or name not in _OF_THE_BOARD:
            yield Finding(what=what, status=MISSING, detail="this source does not report it")
        else:
            shared.append(what)
    if shared:
        detail = f"{listed(shared)}: of the whole board, see GPU {device.index}"
        yield Finding(what="not its own", status=OFF, detail=detail)


# -- what the driver answers -----------------------------------------------------


def _prices(field: FieldAnswer) -> dict[str, Any]:
    return {
        "period_seconds": field.period_s,
        "reading_microseconds": field.reading_us,
        "seconds_per_second": field.seconds_per_second,
    }


def _field(field: FieldAnswer, gpu: GpuAnswers, newest: GpuSample) -> Finding:
    name, what, prices = field.field.name, field.field.title, _prices(field)
    if not field.wanted:
        detail = _opt_in(field) if field.field.opt_in else "switched off: --nvml-off names it"
        return Finding(what=what, status=OFF, detail=detail, **prices)
    if not field.works:
        fault = next((fault for fault in newest.faults if fault.field == name), None)
        detail = _refusal(field, gpu) if fault is None or field.refusal else fault.reason
        return Finding(what=what, status=MISSING, detail=detail, fix=_fix(field), **prices)
    detail = field.value or field.field.text
    if name == "processes" and any(call.function in field.calls for call in PROCESS_SHARES):
        detail += ", with SM shares"
    if name == "events" and gpu.event_types:
        detail = ", ".join(gpu.event_types)
    if name == "persistence_mode" and gpu.persistence_mode is False:
        return Finding(what=what, status=MISSING, detail=detail, fix=_PERSISTENCE, **prices)
    return Finding(what=what, detail=detail, **prices)


def _refusal(field: FieldAnswer, gpu: GpuAnswers) -> str:
    if field.refusal is None:
        return "the driver gave no value" if field.calls else "it was not read"
    function, code = field.refusal
    if field.field.name == "activity" and gpu.has_gpm is False and code == NOT_SUPPORTED:
        return f"no GPM on this board: Hopper and later have it ({code_name(code)})"
    return f"{meaning_of(code)}: {function} answers {code_name(code)}"


def _fix(field: FieldAnswer) -> str | None:
    _, code = field.refusal or ("", SUCCESS)
    if code == NO_PERMISSION and field.field.name == "activity":
        return "run gpumon as root: this driver may let only root read performance counters"
    return _FIXES.get(code)


def _opt_in(field: FieldAnswer) -> str:
    us, name = field.field.quoted_us, field.field.name
    price = "its price is not known"
    if us is not None:
        took = f"{us / 1000:.0f} ms" if us >= 1000 else f"{us:.0f} us"
        price = f"{took} are quoted{field.field.quoted_where}"
    return f"opt-in (--nvml-on {name}): {price}"


def _samples_kept(gpu: GpuAnswers) -> Finding:
    kept = [
        f"{ring.name.replace('_', ' ')} {ring.count} of {ring.cadence_s * 1000:.0f} ms"
        for ring in gpu.rings
        if ring.count and ring.cadence_s is not None
    ]
    if not kept:
        why = next((ring.answer for ring in gpu.rings if ring.answer), "they are empty")
        return Finding(what="samples kept", status=MISSING, detail=f"none: {why}")
    return Finding(what="samples kept", detail="; ".join(kept))


def _mig(gpu: GpuAnswers) -> Finding:
    states = {None: "this board does not have it", False: "off"}
    detail = states.get(gpu.mig_enabled)
    if detail is None:
        detail = f"on, {counted(gpu.mig_instances, 'instance', 'instances')}"
    return Finding(what="mig", detail=detail)
