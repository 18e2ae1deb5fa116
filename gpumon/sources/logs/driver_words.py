"""What nvidia-smi says instead of a GPU's utilisation, and what to do about it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from gpumon.core.device.driver_codes import UNREADABLE
from gpumon.sources.logs.table.skipped_lines import Refusal
from gpumon.sources.nvml.codes import driver_trouble

CELL_CODES: Final = {Refusal.LOST: 15, Refusal.RESET: 16, Refusal.ERROR: 999}
"""NVML's codes of what stands in a GPU's own cell."""
SIGNS_OF_ERRORS: Final = ("ERR!", "[Unknown Error]")
"""What stands in a cell of which the driver gave nothing but an error."""
_OF_A_GPU: Final = (15, 16)
"""Codes that a line says of one GPU, whichever."""
_WAYS: Final = (
    (15, r"gpu is lost|fallen off the bus"),
    (16, r"requires? (?:a )?reset"),
    (18, r"driver/library"),
    (9, r"communicate with the nvidia driver|driver not loaded"),
    (12, r"find libnvidia-ml|library not found"),
    (8, r"external power"),
    (4, r"insufficient permissions"),
    (999, r"unknown error"),
)
_CODES: Final = tuple((code, re.compile(pattern, re.I)) for code, pattern in _WAYS)
_OF_ONE: Final = re.compile(
    r"device handle for (?:gpu)? ?"
    r"(?P<gpu>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.\d|\d{1,4}\b)?",
    re.I,
)
_ERROR: Final = re.compile(
    r"failed to initialize nvml|device handle for|driver/library version|gpu is lost"
    r"|gpu requires (?:a )?reset|nvidia-smi has failed|nvidia-smi couldn't"
    r"|communicate with the nvidia driver|^\s*no devices were found",
    re.I,
)
_UNFINISHED: Final = re.compile(
    r"(?:initialize nvml:?|driver/library|has failed because it|gpu ?[0-9a-f:.]{1,20}:?|gpu is)$",
    re.I,
)
_CONTINUED: Final = re.compile(
    r"nvml library version|make sure that the latest|installed and running|reboot the system"
    r"|^(?:version )?mismatch$",
    re.I,
)


class DriverError(NamedTuple):
    """Why something cannot be read.

    Attributes:
        code: NVML's; ``None``: no code is known, or there is no GPU.
        which: The bus id or the index of the one GPU that it is about; ``""``: not told.
        is_of_one: Whether it is about one GPU; else about the driver, and so about all.
    """

    code: int | None
    which: str
    is_of_one: bool

    @property
    def what(self) -> str:
        """Why, a colon, and what to do, as of a GPU that is read live."""
        if not self.is_of_one:
            return driver_trouble(self.code)
        of_one = UNREADABLE.get(self.code or 0)
        if of_one is None:
            return "nvidia-smi cannot ask the GPU: see what `nvidia-smi` and `dmesg` say"
        return f"{of_one.meaning}: {of_one.advice}"


def error_in(text: str) -> DriverError | None:
    """The error that a line which is no row tells; ``None``: none.

    >>> error_in("Unable to determine the device handle for GPU 0000:18:00.0: GPU is lost.")
    DriverError(code=15, which='0000:18:00.0', is_of_one=True)
    """
    if _ERROR.search(text) is None:
        return None
    one = _OF_ONE.search(text)
    code = next((code for code, way in _CODES if way.search(text)), None)
    which = "" if one is None else (one["gpu"] or "").lower()
    return DriverError(code, which, one is not None or code in _OF_A_GPU)


def is_unfinished(text: str) -> bool:
    """Whether the rest of what a line tells is in the next one."""
    return _ERROR.search(text) is not None and _UNFINISHED.search(text) is not None


def is_continued(text: str) -> bool:
    """Whether a line only adds to an error in the line before it."""
    return _CONTINUED.search(text) is not None
