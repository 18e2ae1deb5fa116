"""Tests of nvidia-smi -q: the utilisation on the page of each GPU, and no other number."""

from __future__ import annotations

from dataclasses import replace

from gpumon.sources.logs.log_sample import LoggedGpu
from tests.builders.logs import example, verified

A40 = LoggedGpu(uuid="GPU-0a1b", name="NVIDIA A40", memory_bytes=46_068 << 20)
OTHER = "2026/01/24 21:52:14.120, 0, 94 %"
MEMORY_OF_AN_INSTANCE = (
    "    MIG Device", "        FB Memory Usage", "            Used     : 3 MiB"
)  # fmt: skip


def page(answer: str = "29 %", bus: str = "31", mig: str = "Disabled") -> tuple[str, ...]:
    return (
        f"GPU 00000000:{bus}:00.0",
        "    Product Name            : NVIDIA A40",
        "    GPU UUID                : GPU-0a1b",
        "    MIG Mode",
        f"        Current             : {mig}",
        "    FB Memory Usage",
        "        Total               : 46068 MiB",
        "        Used                : 1835 MiB",
        "    BAR1 Memory Usage",
        "        Total               : 65536 MiB",
        "        Used                : 5 MiB",
        "    Utilization",
        f"        Gpu                 : {answer}",
        "        Memory              : 77 %",
        "    GPU Utilization Samples",
        "        Max                 : 99 %",
    )


def pages_at(second: int, *pages: tuple[str, ...]) -> tuple[str, ...]:
    stamp = f"Timestamp                   : Sat Jan 24 21:52:{second:02} 2026"
    title = "==============NVSMI LOG=============="
    return (title, "", stamp, "", *(line for one in pages for line in one))


COMPLETE = pages_at(14, page())
NO_TITLE = ("", *pages_at(15, page("97 %"))[1:])
NO_STAMP = [line.replace("Sat Jan", "Sbt Jbn") for line in pages_at(15, page("97 %"))]

EXAMPLES = {
    "a page has the utilisation, the memory and the GPU": example(
        *COMPLETE, busy=[29], used_mib=[1835], gpus=(A40,), began="2026-01-24T21:52:14.000"
    ),
    "a page ends before lines of another program": example(
        *COMPLETE, OTHER, OTHER, busy=[29], skipped=2
    ),
    "pages under one time are of several GPUs": example(
        *pages_at(14, page(), page("97 %", "97")), *pages_at(16, page("0 %"), page("98 %", "97")),
        of=[0, 1, 0, 1], busy=[29, 97, 0, 98], at_s=[0, 0, 2, 2],
    ),
    "memory of an instance is not that of the GPU": example(
        *COMPLETE[:9], *MEMORY_OF_AN_INSTANCE, *COMPLETE[9:], used_mib=[1835]
    ),
    "a page may have no answer": example(
        *COMPLETE, *pages_at(15, page("N/A")), *pages_at(16, page("ERR!")),
        *pages_at(17, page("[GPU requires reset]")),
        busy=[29, None, None, None], skipped=3, noted="Skipped 1 line without a utilisation",
    ),
    "a GPU in instances is not observed, with a note": example(
        *pages_at(14, page("N/A", mig="Enabled")), busy=[None], skipped=1,
        gpus=(replace(A40, mig_enabled=True),), noted="MIG is on, on GPU 0: ",
    ),
    "a page with a damaged time is skipped": example(
        *COMPLETE, *NO_STAMP, *pages_at(16, page()), busy=[29, 29], skipped=2
    ),
    "a page without a title has its time": example(
        *COMPLETE, *NO_TITLE, *pages_at(16, page()), busy=[29, 97, 29], at_s=[0, 1, 2]
    ),
    "a log without a utilisation says what to log": example(
        *pages_at(14, page()[:8]), refused="-d UTILIZATION,MEMORY"
    ),
    **{
        f"a page that was cut off after {kept} lines is counted": example(
            *COMPLETE, *pages_at(15, page()[:kept]),
            busy=[29], skipped=1, noted="Skipped 1 line of a table that was cut off",
        )
        for kept in (1, 5, 12)
    },
}  # fmt: skip


class TestExamples:
    test_is_read_as_expected = verified(EXAMPLES)
