"""What a driver may do to its GPUs, one fault a row, and what gpumon reports.

``faults/test_driver_faults.py`` tests all rows; the doctor and daemons get some of them, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tests.fakenvml import codes
from tests.fakenvml.control import FakeNvml

FIRST, SECOND = BOTH = 0, 1
"""The GPUs of the machine on which faults happen."""

INIT, DRAIN = "nvmlInitWithFlags", "nvmlDeviceGetSamples"
RATES, POWER = "nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPowerUsage"
BY_INDEX, BY_UUID = "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByUUID"
LIST, TEMPERATURE = "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetTemperatureV"
LIMIT, MIG_MODE = "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetMigMode"

Change = Callable[[FakeNvml], None]


class DriverFault(NamedTuple):
    """A temporary fault of a driver or a GPU.

    Attributes:
        message: A pattern of the message after some time; "" for none.
        blind: The GPUs that are not observed meanwhile.
        refuses: A pattern of the error on opening NVML meanwhile; "" if it opens.
        reopens: Whether gpumon closes and reopens NVML meanwhile.
    """

    name: str
    begin: Change
    end: Change
    message: str = ""
    blind: tuple[int, ...] = (FIRST,)
    refuses: str = ""
    reopens: bool = False

    def __str__(self) -> str:
        return self.name


def all_of(*changes: Change) -> Change:
    """One after the other."""

    def change(fake: FakeNvml) -> None:
        for one in changes:
            one(fake)

    return change


def failing(code: int, *functions: str, gpu: int | None = None) -> Change:
    """These functions return ``code``, for one GPU or for all."""
    return all_of(*(lambda fake, name=name: fake.fail(name, code, gpu=gpu) for name in functions))


def losing(code: int, *slots: int) -> Change:
    """Every call on these GPUs returns ``code``."""
    return all_of(*(lambda fake, slot=slot: fake.lose(slot, code) for slot in slots))


def working(*functions: str, gpu: int | None = None) -> Change:
    """These functions work again."""
    return failing(codes.SUCCESS, *functions, gpu=gpu)


def finding(*slots: int) -> Change:
    """These GPUs work again."""
    return losing(codes.SUCCESS, *slots)


def everything_failing(code: int) -> Change:
    """Every call returns ``code``, and NVML cannot be opened."""
    return all_of(lambda fake: fake.fail_everything(code), failing(code, INIT))


def listing(*slots: int) -> Change:
    """The machine has these GPUs, in this order."""
    return lambda fake: fake.reorder(slots)


def reset_first(fake: FakeNvml) -> None:
    fake.reset(FIRST)


def cut_first(fake: FakeNvml) -> None:
    fake.cut(FIRST, 1)
    fake.part_wave(FIRST, 0, period_s=1.0, busy_ratio=1.0)


def over(fake: FakeNvml) -> None:
    """It ends by itself."""


reloaded = FakeNvml.reload_driver


def shut(name: str, begin: Change, end: Change, refuses: str, message: str = "") -> DriverFault:
    """No GPU can be read, and no process can open NVML."""
    return DriverFault(
        name, begin, end, message or refuses, blind=BOTH, refuses=refuses, reopens=True
    )


def not_opened(name: str, code: int, refuses: str, message: str = "") -> DriverFault:
    """A driver that was reloaded, and cannot be opened because of ``code``."""
    begin = all_of(failing(code, INIT), reloaded)
    return shut(f"a driver that {name}", begin, working(INIT), refuses, message)


NOT_LOADED = not_opened("is not loaded", codes.DRIVER_NOT_LOADED, "modprobe nvidia")
REPLACED = not_opened(
    "was replaced", codes.VERSION_MISMATCH,
    refuses="reboot or reload the driver|recreate this container", message="start gpumon again",
)  # fmt: skip
SHUT_DRIVERS = (
    NOT_LOADED,
    REPLACED,
    not_opened("this user may not open", codes.NO_PERMISSION, "/dev/nvidiactl"),
    not_opened("has too little memory", 20, r"\(20\)"),
    shut(
        "a container that has lost its GPUs",
        everything_failing(codes.UNKNOWN), everything_failing(codes.SUCCESS),
        refuses="dmesg", message="recreate a container, since `systemctl daemon-reload`",
    ),
    shut(
        "a container whose GPUs the system blocks",
        everything_failing(codes.OPERATING_SYSTEM), everything_failing(codes.SUCCESS),
        refuses="/dev/nvidia", message="that had them, since `systemctl daemon-reload`",
    ),
    shut("a driver that lists no GPU", listing(), listing(*BOTH), "lists no GPU"),
    shut(
        "a driver that lets this user open no GPU",
        all_of(failing(codes.NO_PERMISSION, BY_INDEX), reloaded), working(BY_INDEX),
        "read and write access",
    ),
    shut("all GPUs lost", losing(codes.GPU_IS_LOST, *BOTH), finding(*BOTH), "every GPU is lost"),
    shut("all GPUs out of time", losing(codes.TIMEOUT, *BOTH), finding(*BOTH), r"\(10\)"),
)  # fmt: skip


def lost(name: str, code: int, message: str) -> DriverFault:
    """Every call on the first GPU returns ``code``."""
    return DriverFault(f"a GPU that {name}", losing(code, FIRST), finding(FIRST), message)


LOST_GPUS = (
    lost("is lost", codes.GPU_IS_LOST, r"GPU 0: the GPU is lost \(NVML 15\): look for Xid 79"),
    lost("fails for no reason", codes.UNKNOWN, r"GPU 0: .*error \(NVML 999\): look for Xid"),
    lost("is out of time", codes.TIMEOUT, r"GPU 0: .*\(10\)"),
    DriverFault(
        "a GPU that needs a reset",
        losing(codes.RESET_REQUIRED, FIRST), all_of(reset_first, finding(FIRST)),
        "GPU 0: .*--gpu-reset",
    ),
    DriverFault(
        "a GPU that is lost while another call takes long",
        all_of(losing(codes.GPU_IS_LOST, FIRST), lambda fake: fake.delay(LIMIT, 30_000)),
        all_of(finding(FIRST), lambda fake: fake.delay(LIMIT, 0)),
        "GPU 0: the GPU is lost",
    ),
    DriverFault(
        "a GPU that this user may not read",
        failing(codes.NO_PERMISSION, DRAIN, RATES, POWER, gpu=FIRST),
        working(DRAIN, RATES, POWER, gpu=FIRST),
        "^GPU 0: this user may not read the GPU",
    ),
)  # fmt: skip
"""Listed, but unreadable; the other GPUs work."""

NO_TROUBLE = (
    DriverFault("a GPU that is taken out", listing(SECOND), listing(*BOTH)),
    DriverFault(
        "a GPU that is reset outside the machine",
        listing(SECOND), all_of(reset_first, listing(*BOTH)),
    ),
    DriverFault("a GPU that is cut by MIG", cut_first, lambda fake: fake.uncut(FIRST)),
    DriverFault("two GPUs that change places", listing(SECOND, FIRST), listing(*BOTH), blind=()),
    DriverFault("a driver that is reloaded", reloaded, over, blind=(), reopens=True),
)  # fmt: skip
"""Nothing is reported: it was done on purpose, or is over at once."""


def refused(code: int, *functions: str, blind: tuple[int, ...] = ()) -> DriverFault:
    """Essential calls, refused for a while."""
    name = f"{' and '.join(functions)} that answer {code}"
    return DriverFault(name, failing(code, *functions), working(*functions), blind=blind)


CALLS_THAT_FAIL = (
    refused(codes.UNKNOWN, DRAIN),
    refused(codes.NOT_SUPPORTED, DRAIN, RATES, blind=BOTH),
    refused(codes.NOT_SUPPORTED, DRAIN, RATES, POWER, blind=BOTH),
)

FAULTS = (*SHUT_DRIVERS, *LOST_GPUS, *NO_TROUBLE, *CALLS_THAT_FAIL)
