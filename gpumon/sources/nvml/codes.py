"""NVML's return codes: what each means, and what the user can do about it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from gpumon.core.device.driver_codes import UNREADABLE
from gpumon.errors import SourceUnavailableError
from gpumon.sources.installed import container_words

SUCCESS: Final = 0
UNINITIALIZED: Final = 1
INVALID_ARGUMENT: Final = 2
NOT_SUPPORTED: Final = 3
NO_PERMISSION: Final = 4
NOT_FOUND: Final = 6
INSUFFICIENT_SIZE: Final = 7
DRIVER_NOT_LOADED: Final = 9
NOTHING_HAPPENED: Final = 10
"""A wait for events that ended without one."""
LIBRARY_NOT_FOUND: Final = 12
FUNCTION_NOT_FOUND: Final = 13
GPU_IS_LOST: Final = 15
RESET_REQUIRED: Final = 16
OPERATING_SYSTEM: Final = 17
VERSION_MISMATCH: Final = 18
NO_DATA: Final = 21
ARGUMENT_VERSION: Final = 25
DEPRECATED: Final = 26
UNKNOWN_ERROR: Final = 999

NOT_IN_THIS_DRIVER: Final = frozenset({FUNCTION_NOT_FOUND, ARGUMENT_VERSION, DEPRECATED})
"""The driver has no such function, not in this form, or no longer: an older one may work."""

PERMANENT: Final = NOT_IN_THIS_DRIVER | {NOT_SUPPORTED, NO_PERMISSION}
"""Not supported, not permitted, not in this driver: the call is not repeated."""

NOTHING_NEW: Final = frozenset({SUCCESS, NOT_FOUND, NO_DATA})
"""The call works, and there is nothing to report."""

NO_ERROR: Final = NOTHING_NEW | NOT_IN_THIS_DRIVER | {NOT_SUPPORTED}
"""Answers of a working driver: done, nothing new, or not on this board or in this driver."""

NO_INSTANCE_THERE: Final = NO_ERROR | {INVALID_ARGUMENT}
"""A MIG-partitioned GPU answers "invalid argument" for an instance that was destroyed."""

GENERAL: Final = frozenset(
    {
        UNINITIALIZED, INVALID_ARGUMENT, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, OPERATING_SYSTEM,
        VERSION_MISMATCH, UNKNOWN_ERROR,
    }
)  # fmt: skip
"""If every GPU answers one of these, the driver is gone, and not a GPU."""

GPU_IS_GONE: Final = frozenset({UNINITIALIZED, GPU_IS_LOST, RESET_REQUIRED})
"""After one of these no other call for the GPU is worth making."""

_ADVICE_ON_THE_DRIVER: Final = {
    12: "libnvidia-ml.so.1 was not found: install the NVIDIA driver, or give this container its "
    "GPUs (--gpus all); `gpumon demo` needs none",
    13: "this NVIDIA driver is too old for gpumon: install version 470 or newer",
    1: "the NVIDIA driver went away and is being opened again: read `dmesg` if it stays away",
    4: "this user may not use the NVIDIA driver: give this user read and write access to "
    "/dev/nvidiactl and /dev/nvidia*",
    8: "a GPU has too little external power: look at its power cables",
    9: "the NVIDIA driver is not loaded: run `modprobe nvidia`, and read `dmesg` if that fails",
    15: f"every GPU is lost: {UNREADABLE[15].advice}",
    16: "every GPU needs a reset: end what uses them, gpumon too, then `nvidia-smi --gpu-reset`, "
    "or reboot",
    17: "the operating system blocks the GPUs: recreate a container that had them, since "
    "`systemctl daemon-reload` can take them away; let a service use /dev/nvidia*",
    999: "NVML answers with an unknown error: read `dmesg`, and recreate a container, since "
    "`systemctl daemon-reload` can take its GPUs away",
}

_MISMATCH: Final = "libnvidia-ml.so.1 and the loaded driver are of different versions"
_RELOAD: Final = "reboot or reload the driver"
_NEW_CONTAINER: Final = (
    "recreate this container: it must get the library from its host, not from its image"
)


class VersionMismatchError(SourceUnavailableError):
    """The mapped library cannot use the loaded driver."""


def unavailable(code: int) -> SourceUnavailableError:
    """The error for the user when NVML as a whole answers ``code``."""
    if code == VERSION_MISMATCH:
        return VersionMismatchError(f"{_MISMATCH}: {mismatch_remedy()}")
    text = _ADVICE_ON_THE_DRIVER.get(code) or (
        f"NVML cannot be used, it answers {code_name(code)}: see what `nvidia-smi` and `dmesg` say"
    )
    return SourceUnavailableError(text)


def driver_trouble(code: int | None) -> str:
    """The sentence on a driver of another machine or day; ``None``: it found no GPU."""
    if code == VERSION_MISMATCH:
        return f"{_MISMATCH}: {_RELOAD}"
    return str(no_gpu(()) if code is None else unavailable(code))


def mismatch_remedy() -> str:
    """What to do if library and driver do not match: a container has its host's driver."""
    return _RELOAD if container_words(os.environ) is None else _NEW_CONTAINER


def code_name(code: int) -> str:
    """Such as ``"GPU is lost (15)"``."""
    from gpumon.sources.nvml.pynvml_module import pynvml  # the doctor needs codes without it

    return f"{pynvml.NVMLError(code)} ({code})"


def gpu_trouble(code: int) -> str:
    """The sentence for the user when one GPU answers ``code``, while others may be well."""
    text = UNREADABLE.get(code)
    if text is not None:
        return f"{text.meaning} (NVML {code}): {text.advice}"
    return f"NVML answers {code_name(code)}: see what `nvidia-smi` and `dmesg` say"


def no_gpu(refusals: Sequence[int]) -> SourceUnavailableError:
    """The error where there is a driver and no GPU that can be read; it answered ``refusals``."""
    if refusals:
        return unavailable(refusals[0])
    return SourceUnavailableError(
        "the NVIDIA driver lists no GPU that can be read: look into `dmesg`, and in a container "
        "give it its GPUs (--gpus all)"
    )


_MEANING: Final = {
    1: "the driver was reloaded",
    2: "the driver does not know this call",
    3: "not supported by this board",
    4: "not permitted for this user",
    6: "nothing to report now",
    7: "the answer is larger than the buffer",
    9: "the driver is not loaded",
    10: "nothing happened meanwhile",
    12: "the library is missing",
    13: "not in this driver",
    15: "the GPU is lost",
    16: "the GPU needs a reset",
    17: "the operating system blocks the GPU",
    18: "library and driver are of different versions",
    19: "the GPU is in use by another program",
    20: "the driver has too little memory",
    25: "not in this form in this driver",
    26: "no longer in this driver",
    999: "an unknown error",
}


def meaning_of(code: int) -> str:
    """Return what a code means, in a few words; empty for success.

    >>> meaning_of(3), meaning_of(0), meaning_of(77)
    ('not supported by this board', '', 'an answer without a name')
    """
    return "" if code == 0 else _MEANING.get(code, "an answer without a name")
