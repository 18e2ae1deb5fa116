"""Tests of nvidia-smi dmon and dcgmi dmon: any columns, stamps and headers."""

from __future__ import annotations

from gpumon.sources.logs.log_sample import LoggedGpu
from tests.builders.logs import example, verified

U = ("# gpu    sm   mem", "# Idx     %     %")
DT = ("#Date       Time        gpu    sm    fb", "#YYYYMMDD   HH:MM:SS    Idx     %    MB")
T = ("#Time        gpu    sm", "#HH:MM:SS    Idx     %")

EXAMPLES = {
    "a row is read by its header, in any order of columns": example(
        "# gpu mem pwr sm", "0 9 70 55", busy=[55]
    ),
    "a row of dashes has no answer": example(
        *U, "0 45 3", "0 - -", "0 50 3",
        busy=[45, None, 50], skipped=1, noted="Skipped 1 line without a utilisation",
    ),
    "rows after a header without sm are counted until the next": example(
        *U, "0 45 3", "# gpu pwr gtemp", "0 70 41", *U, "0 50 3",
        busy=[45, 50], skipped=1, noted="Skipped 1 line of a table without a utilisation column",
    ),
    "a line that is no row is counted": example(
        *U, "0 40 3", "0 45", "0 45 3 9", "x 45 3", "Killed", "0 50 3", busy=[40, 50], skipped=4
    ),
    "a line without an end is refused as one": example(
        *U, "0 40 3", "0 " * 30_000, "0 50 3",
        busy=[40, 50], skipped=1, noted="Skipped 1 line too long",
    ),
    "MIG instances are distinguished": example(
        "# gpu gi ci sm", "0 - - -", "0 1 0 40", "0 2 0 60", "0 1 0 50",
        of=[0, 1, 2, 1], busy=[None, 40, 60, 50], skipped=1,
        gpus=(LoggedGpu(index=0), LoggedGpu(0, mig_index=0), LoggedGpu(0, mig_index=1)),
    ),
    "times of day go on after midnight": example(
        *T, *(f"{time} 0 45" for time in ("23:59:58", "23:59:59", "00:00:00", "00:00:01")),
        at_s=[0, 1, 2, 3], began=None,
    ),
    "times of day go on if the log was started again in the evening": example(
        *T, *(f"{time} 0 45" for time in ("23:59:59", "00:00:00", "23:30:00", "23:30:01")),
        at_s=[0, 1, 84_601, 84_602], began=None,
    ),
    "rows with only a date are a second apart": example(
        "#Date gpu sm", "20260124 0 45", "20260124 0 50", at_s=[0, 1], noted="1 s a row (assumed"
    ),
    "a table under another header is skipped": example(
        *T, "10:00:00 0 45", *U, "0 50 3", *T, "10:00:02 0 45",
        at_s=[0, 2], skipped=1, noted="Skipped 1 line under a header other than the first",
    ),
    "a damaged stamp is not repaired": example(
        *DT, "20260124 09:59:59 0 40 9", "20260124 25:00:00 0 45 9", "20261324 10:00:00 0 45 9",
        "202601 10:00:00 0 45 9", "20260124 10:00:01 0 50 9",
        busy=[40, 50], skipped=3, noted="Skipped 3 lines with a time that cannot be read",
    ),
    "a log without sm is refused with the option to log it": example(
        "# gpu pwr gtemp", "0 70 41", refused="dmon -s u` prints it in the column sm"
    ),
    "a log of blanks without a header is not guessed": example(
        *["20260124 21:52:14 0 45 3"] * 2, refused="no header, and the utilisation could be any"
    ),
}  # fmt: skip


class TestNvidiaSmiDmon:
    test_is_read_as_expected = verified(EXAMPLES)


DCGMI = {
    "the utilisation is the best field": example(
        "#Entity GRACT GPUTL FBUSD", "ID", "GPU 0 0.999 45 1830",
        busy=[45], used_mib=[1830], noted="Busy is GPUTL (203)",
    ),
    "the activity of engines is next": example(
        "#Entity SMACT GRACT", "ID", "GPU 0 0.2 0.5", busy=[50], noted="GRACT (1001)"
    ),
    "an instance without a utilisation has the next field": example(
        "#Entity GPUTL GRACT", "ID", "GPU 0 N/A 0.4", "GPU-I 3 N/A 0.8", busy=[40, 80]
    ),
    "a header may come again": example(
        "#Entity GPUTL", "ID", "GPU 0 45", "# Entity  GPUTL", "  Id", "GPU 0 50", busy=[45, 50]
    ),
    "entities are GPUs, and instances of the only GPU": example(
        "#Entity GRACT", "ID", "GPU 2 0.5", "GPU-I 0 0.6", "GPU-I 1 0.7",
        gpus=(LoggedGpu(2, mig_enabled=True), LoggedGpu(2, mig_index=0), LoggedGpu(2, mig_index=1)),
    ),
    "an instance of an unknown GPU has the name in the log": example(
        "#Entity GRACT", "ID", "GPU 0 0.5", "GPU 1 0.6", "GPU-I 4 0.7",
        gpus=(LoggedGpu(index=0), LoggedGpu(index=1), LoggedGpu(name="GPU-I 4")),
    ),
    "entities within instances and outside GPUs are skipped": example(
        "#Entity GRACT", "ID", "GPU 0 0.5", "GPU-CI 0 0.9", "Switch 1 0.1", busy=[50]
    ),
    "a line that is no row is counted": example(
        "#Entity GPUTL", "ID", "GPU 0 45", "Error: lost the host engine", "GPU 0", "GPU x 45",
        "GPU 0 45 7", "^C", "GPU 0 50", busy=[45, 50], skipped=5,
    ),
    "a log without a utilisation is refused with what to log": example(
        "#Entity POWER TMPTR", "ID", "GPU 0 61.5 40", refused="-e 203,252"
    ),
}  # fmt: skip


class TestDcgmiDmon:
    test_is_read_as_expected = verified(DCGMI)
