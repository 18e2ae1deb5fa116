"""Two generations of the driver: what an old one lacks, and the boards it came with."""

from __future__ import annotations

from dataclasses import dataclass

from tests.fakenvml.build import SONAME


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverGeneration:
    """A driver, and the GPUs that one finds with it.

    Attributes:
        name: For the ids of tests.
        driver_version: As the driver says it.
        cuda_version: The newest CUDA it runs: 1000 * major + 10 * minor.
        newest_field: The highest id that ``nvmlDeviceGetFieldValues`` knows.
        lacks: Functions that its library does not export.
        soname: Name inside the library's file. The old one's differs, so that
            a process that has both loaded finds the present one by its name.
        gpu_name: What its boards are called.
        compute_capability: 90 for 9.0.
        has_gpm: Whether its boards and it know GPM.
        sm_clock_mhz: The highest clock of its boards' SMs, in MHz.
        power_limit_mw: Their power limit, in milliwatts.
        nvlink_count: How many NVLinks each has.
    """

    name: str
    driver_version: str
    cuda_version: int
    newest_field: int
    lacks: tuple[str, ...] = ()
    soname: str = SONAME
    gpu_name: str
    compute_capability: int
    has_gpm: bool
    sm_clock_mhz: int
    power_limit_mw: int
    nvlink_count: int

    def __str__(self) -> str:
        return self.name


PRESENT_DRIVER = DriverGeneration(
    name="present-driver",
    driver_version="580.95.05",
    cuda_version=13_000,
    newest_field=307,
    gpu_name="NVIDIA H100 80GB HBM3",
    compute_capability=90,
    has_gpm=True,
    sm_clock_mhz=1_980,
    power_limit_mw=700_000,
    nvlink_count=18,
)

OLD_DRIVER = DriverGeneration(
    name="old-driver",
    driver_version="470.256.02",
    cuda_version=11_040,
    newest_field=166,
    lacks=(
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        "nvmlDeviceGetRunningProcessDetailList",
        "nvmlDeviceGetConfComputeMemSizeInfo",
        "nvmlDeviceGetProcessesUtilizationInfo",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetDriverModel_v2",
        "nvmlGpmQueryDeviceSupport",
        "nvmlGpmSampleAlloc",
        "nvmlGpmSampleFree",
        "nvmlGpmSampleGet",
        "nvmlGpmMigSampleGet",
        "nvmlGpmMetricsGet",
    ),
    soname="libnvidia-ml-old.so.1",
    gpu_name="NVIDIA A100-SXM4-80GB",
    compute_capability=80,
    has_gpm=False,
    sm_clock_mhz=1_410,
    power_limit_mw=400_000,
    nvlink_count=12,
)

DRIVER_GENERATIONS = (PRESENT_DRIVER, OLD_DRIVER)
