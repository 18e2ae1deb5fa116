"""GPUs as users name them for a training, and why a training may be joined to none."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from gpumon.core.figures import listed
from gpumon.core.label_text import label_text

WHAT_TO_SET: Final = "GPUMON_GPUS=0 in its environment, or gpus=[0] in its tagger"
_MOST_NAMES: Final = 4
_MOST_LENGTH: Final = 48


class GpuName(NamedTuple):
    """What a GPU, or a MIG instance, answers to.

    Attributes:
        label: Its number: ``"0"``, and ``"0:1"`` for a MIG instance.
        uuid: ``GPU-...`` or ``MIG-...``.
    """

    label: str
    uuid: str

    def is_meant_by(self, name: str) -> bool:
        """Whether a user's name is that number, or the beginning of that UUID.

        >>> GpuName("0", "GPU-8f1c").is_meant_by("GPU-8"), GpuName("0", "1f").is_meant_by("1")
        (True, False)
        """
        if name == self.label:
            return True
        return bool(name) and not name.isdigit() and self.uuid.startswith(name)


def doubt_of_names(names: Iterable[str] | None, gpus: Collection[GpuName]) -> str | None:
    """What is wrong with the names that a training gave for its GPUs, to be said after its own.

    >>> doubt_of_names(["0", "99"], [GpuName(str(index), "") for index in range(8)])
    'names GPU 99, and there are GPU 0 to 7: set GPUMON_GPUS, or gpus=[...] in its tagger, to those'

    Args:
        names: As the user wrote them; ``None``: there are none, and nothing is wrong.
        gpus: All that there are, one at least.

    Returns:
        ``None`` where each is the name of one.
    """
    if names is None:
        return None
    names = [name.strip() for name in names]
    strange = [name for name in names if not any(gpu.is_meant_by(name) for gpu in gpus)]
    if names and not strange:
        return None
    said = listed([_said(name) for name in strange], most=_MOST_NAMES) if names else "no GPU"
    return (
        f"names {said}, and {_there_are(gpus)}: set GPUMON_GPUS, or gpus=[...] in its tagger, "
        f"to {'those' if len(gpus) > 1 else 'that'}"
    )


def doubt_of_work(
    names: Collection[str] | None, gpus: Collection[GpuName], *, simulated: bool, pid: int
) -> str:
    """Why a training may have been seen at work on no GPU, and what to set.

    To be said after its name.

    Args:
        names: As in ``doubt_of_names``.
        gpus: All that are watched, one at least.
        simulated: Whether they are made up.
        pid: Its process id, as the daemon sees it.
    """
    wrong = doubt_of_names(names, gpus)
    if wrong is not None:
        return wrong
    if names is not None:
        said = listed([_said(name.strip()) for name in names], most=_MOST_NAMES)
        return f"names {said}, and was not seen at work there"
    if simulated:
        return (
            "is joined to no GPU, for the daemon watches simulated ones, and no process is on "
            f"those: set {WHAT_TO_SET}"
        )
    return (
        f"was seen at work on no GPU, for the driver lists its pid {pid} on none: if it uses one "
        f"(in a container, say), set {WHAT_TO_SET}"
    )


def _said(name: str) -> str:
    shown = label_text(name, _MOST_LENGTH)
    return f"GPU {shown}" if shown[:1].isdigit() else repr(shown)


def _there_are(gpus: Collection[GpuName]) -> str:
    labels = [gpu.label for gpu in gpus]
    if len(labels) == 1:
        return f"there is GPU {labels[0]} alone"
    if len(labels) > 2 and labels == [str(index) for index in range(len(labels))]:
        return f"there are GPU 0 to {len(labels) - 1}"
    return f"there are {listed([f'GPU {label}' for label in labels], most=_MOST_NAMES)}"
