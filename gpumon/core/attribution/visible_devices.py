"""Find the GPUs that a name means: in ``$CUDA_VISIBLE_DEVICES`` by CUDA's rules, or by a user."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from gpumon.core.clock import NS_PER_S
from gpumon.core.sample import Device
from gpumon.core.wording import gpus_named, label_text, listed

_LEADING_NUMBER: Final = re.compile(r"\+?0*([0-9]{1,9})")
_MAX_NAMES: Final = 1_024
WHAT_TO_SET: Final = "GPUMON_GPUS=0 in its environment, or gpus=[0] in its tagger"
WHAT_TO_CHECK: Final = (
    "check that its framework is built for CUDA, and that no variable such as CUDA_VISIBLE_DEVICES "
    "or JAX_PLATFORMS hides the GPUs from it"
)
BEGINNING_NS: Final = 10 * NS_PER_S
"""A younger run may not have been matched with its GPUs yet."""
_MAX_LISTED: Final = 4
_MAX_LENGTH: Final = 48


def cuda_devices(visible: str | None, devices: Sequence[Device]) -> tuple[Device, ...]:
    """The devices of a process, in CUDA's numbering.

    The list ends before the first name that matches no device, or more than one,
    or is of another kind than the first; a device that is named twice empties it.
    A MIG-partitioned GPU stands for its first instance. CUDA gives a process a single
    instance, and then no other device.

    >>> gpus = (Device(uuid="GPU-8932f937", index=0), Device(uuid="GPU-18ef14e9", index=1))
    >>> [gpu.index for gpu in cuda_devices("1,-1,0", gpus)]
    [1]
    >>> [gpu.index for gpu in cuda_devices("GPU-8932", gpus)]
    [0]

    Args:
        visible: ``$CUDA_VISIBLE_DEVICES``; ``None`` if unset.
        devices: GPUs in the order of CUDA's numbers; MIG instances in the driver's. An unknown
            UUID is empty.
    """
    if visible is None:
        chosen = [_first_of(gpu, devices) for gpu in _whole(devices)]
    else:
        names = [name.strip() for name in visible.split(",", _MAX_NAMES)[:_MAX_NAMES]]
        chosen = _named(names, devices)
    usable = [one for one in chosen if not one.mig_enabled]
    instances = [one for one in usable if one.mig_index is not None]
    return tuple(instances[:1] or usable)


def _whole(devices: Sequence[Device]) -> list[Device]:
    return [one for one in devices if one.mig_index is None]


def _named(names: Sequence[str], devices: Sequence[Device]) -> list[Device]:
    kind = next((kind for kind in ("MIG-", "GPU-") if names[0].startswith(kind)), None)
    chosen: list[Device] = []
    for name in names:
        one = _by_uuid(name, kind, devices) if kind else _by_number(name, devices)
        if one is None:
            break
        if one in chosen:
            return []
        chosen.append(one)
    return chosen


def _first_of(gpu: Device, devices: Sequence[Device]) -> Device:
    """The GPU itself, or the first instance of a MIG-partitioned one."""
    of_gpu = (one for one in devices if one.index == gpu.index and one.mig_index is not None)
    return next(of_gpu, gpu) if gpu.mig_enabled else gpu


def _by_number(name: str, devices: Sequence[Device]) -> Device | None:
    number, gpus = _LEADING_NUMBER.match(name), _whole(devices)  # as C reads it: "1gpu" is 1
    position = -1 if number is None else int(number[1])
    return _first_of(gpus[position], devices) if 0 <= position < len(gpus) else None


def _by_uuid(name: str, kind: str, devices: Sequence[Device]) -> Device | None:
    """The device whose UUID begins with the name; ``GPU-`` alone matches none, as on an H100."""
    if not name.startswith(kind) or name == kind:
        return None
    of_kind = [one for one in devices if (one.mig_index is None) is (kind == "GPU-")]
    fitting = [one for one in of_kind if one.uuid.startswith(name) or _old_name(one) == name]
    return _first_of(fitting[0], devices) if len(fitting) == 1 else None


def _old_name(instance: Device) -> str:
    """The name of an instance in drivers before 470."""
    return f"MIG-{instance.parent_uuid}/{instance.gpu_instance}/{instance.compute_instance}"


class GpuName(NamedTuple):
    """The names of a GPU or a MIG instance.

    Attributes:
        label: Its number: ``"0"``, and ``"0:1"`` for a MIG instance.
        uuid: ``GPU-...`` or ``MIG-...``.
    """

    label: str
    uuid: str

    def is_meant_by(self, name: str) -> bool:
        """Whether a user's name is the number, or the beginning of the UUID.

        >>> GpuName("0", "GPU-8f1c").is_meant_by("GPU-8"), GpuName("0", "1f").is_meant_by("1")
        (True, False)
        """
        if name == self.label:
            return True
        return bool(name) and not name.isdigit() and self.uuid.startswith(name)


def problem_with_names(names: Iterable[str] | None, gpus: Collection[GpuName]) -> str | None:
    """What is wrong with the GPU names of a run, as the rest of a sentence about it.

    >>> problem_with_names(["0", "9"], [GpuName("0", "")])
    'names GPU 9, but there is only GPU 0: set GPUMON_GPUS, or gpus=[...] in its tagger, to that'

    Args:
        names: As the user wrote them; ``None``: there are none, and nothing is wrong.
        gpus: All GPUs, at least one.

    Returns:
        ``None`` if each name matches a GPU.
    """
    if names is None:
        return None
    names = [name.strip() for name in names]
    unmatched = [name for name in names if not any(gpu.is_meant_by(name) for gpu in gpus)]
    if names and not unmatched:
        return None
    shown = listed([_shown(name) for name in unmatched], most=_MAX_LISTED) if names else "no GPU"
    return (
        f"names {shown}, but {_there_are(gpus)}: set GPUMON_GPUS, or gpus=[...] in its tagger, "
        f"to {'those' if len(gpus) > 1 else 'that'}"
    )


def problem_with_work(
    names: Collection[str] | None,
    gpus: Collection[GpuName],
    *,
    simulated: bool,
    pid: int,
    on_cpu: bool = False,
) -> str:
    """Why a run was seen at work on no GPU, and what to set, as the rest of a sentence about it.

    Names and GPUs as in ``problem_with_names``, ``pid`` as the daemon sees it, ``on_cpu`` as in
    ``RunFacts``.
    """
    if on_cpu and not simulated:
        return f"computes its steps on the CPU, and uses no GPU: {WHAT_TO_CHECK}"
    wrong = problem_with_names(names, gpus)
    if wrong is not None:
        return wrong
    if names is not None:
        shown = listed([_shown(name.strip()) for name in names], most=_MAX_LISTED)
        return f"names {shown}, and was not seen at work there"
    if simulated:
        return (
            "is not assigned to a GPU, because the daemon watches simulated GPUs, which no process "
            f"uses: set {WHAT_TO_SET}"
        )
    return (
        f"is not assigned to a GPU, because the driver lists its pid {pid} on none: if it uses one "
        f"(in a container, say), set {WHAT_TO_SET}; if its steps compute on the CPU, "
        f"{WHAT_TO_CHECK}"
    )


def _shown(name: str) -> str:
    shown = label_text(name, _MAX_LENGTH)
    return f"GPU {shown}" if shown[:1].isdigit() else repr(shown)


def _there_are(gpus: Collection[GpuName]) -> str:
    labels = [gpu.label for gpu in gpus]
    if len(labels) == 1:
        return f"there is only GPU {labels[0]}"
    return f"there are only {gpus_named(labels)}"
