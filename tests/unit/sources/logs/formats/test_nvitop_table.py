"""Specification of nvitop's tables: corners the samples leave out."""

from __future__ import annotations

from dataclasses import replace

from gpumon.sources.logs.log_sample import LoggedGpu
from tests.builders_log_corners import corner, heard


def table(
    second: int | None, busy: str, used: str = "12000MiB", mig: str = "Disabled"
) -> tuple[str, ...]:
    """One table of one GPU."""
    return (
        "" if second is None else f"Sat Jan 24 21:05:{second:02d} 2026",
        "│ NVITOP 1.7.2       Driver Version: 580.95.05      CUDA Driver Version: 13.0 │",
        "│ Fan  Temp  Perf  Pwr:Usage/Cap│         Memory-Usage │ GPU-Util  Compute M. │",
        f"│   3  H100 80GB HBM3        On │ 00000000:1A:00.0 Off │ {mig:>8}           0 │",
        f"│ 30%   54C   P0    310W / 700W │ {used:>9} / 79.65GiB │ {busy:>7}      Default │ 9% │",
        "│   3    7144 C    root  7168MiB  64    10   0.0   0.0  0:02  python 55% Default │",
    )


H100 = LoggedGpu(3, name="H100 80GB HBM3", memory_bytes=round(79.65 * (1 << 30)))
RED = [line.replace("│ 30%", "│\x1b[31m 30%").replace("96%", "\x1b[1m96%\x1b[0m")
       for line in table(1, "96%")]  # fmt: skip

CORNERS = {
    "a table tells GPU, moment, utilisation and memory": corner(
        *table(1, "96%"), *table(3, "100%"),
        busy=[96, 100], at_s=[0, 2], used_mib=[12_000, 12_000], gpus=(H100,),
    ),
    "lines of something else are counted": corner(
        *table(1, "96%"), "2026/01/24 21:05:14.120, 0, 94 %", busy=[96], skipped=1
    ),
    "a GPU cut into instances has no answer": corner(
        *table(1, "N/A", mig="Enabled"), *table(2, "3%"),
        busy=[None, 3], skipped=1, gpus=(replace(H100, mig_enabled=True),),
    ),
    "a table in colours is read as without": corner(*RED, busy=[96]),
    "tables without a moment above them count rows, and say so": corner(
        *table(None, "96%"), *table(None, "3%"), at_s=[0, 1], noted="no time stamps"
    ),
    "memory may be none": corner(*table(1, "5%", "0B"), used_mib=[0]),
    "memory may count GiB": corner(*table(1, "5%", "1.50GiB"), used_mib=[1536]),
    "memory may have no answer": corner(*table(1, "5%", "N/A"), used_mib=[None]),
    "a row with more memory than a number can hold is none": corner(
        *table(1, "5%"), *table(2, "5%", "9" * 400 + "MiB"), busy=[5]
    ),
    "a log without any GPU is refused": corner(
        "│ NVITOP 1.7.2       Driver Version: N/A │", "No devices",
        refused="no table with a utilisation",
    ),
}  # fmt: skip


class TestACorner:
    test_is_heard_as_it_is_told = heard(CORNERS)
