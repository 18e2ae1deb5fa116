"""Specification of dcgmi dmon: the best field of utilisation, of GPUs and MIG instances."""

from __future__ import annotations

from gpumon.sources.logs.log_sample import LoggedGpu
from tests.builders.logs import example, verified

EXAMPLES = {
    "the field is the utilisation before all others": example(
        "#Entity GRACT GPUTL FBUSD", "ID", "GPU 0 0.999 45 1830",
        busy=[45], used_mib=[1830], noted="Busy is GPUTL (203)",
    ),
    "the field is activity where there is no utilisation": example(
        "#Entity SMACT GRACT", "ID", "GPU 0 0.2 0.5", busy=[50], noted="GRACT (1001)"
    ),
    "the field is activity of the SMs where there is no other": example(
        "#Entity SMOCC SMACT", "ID", "GPU 0 0.2 0.5", busy=[50], noted="SMACT (1002)"
    ),
    "the field is the next best where an instance has no utilisation": example(
        "#Entity GPUTL GRACT", "ID", "GPU 0 N/A 0.4", "GPU-I 3 N/A 0.8", busy=[40, 80]
    ),
    "the field may say nothing": example(
        "#Entity GPUTL", "ID", "GPU 0 45", "GPU 0 N/A", "GPU 0 Not Supported", "GPU 0 5",
        busy=[45, None, None, 5], skipped=2,
    ),
    "the field changes with a header": example(
        "#Entity GPUTL", "ID", "GPU 0 45", "# Entity GRACT FBUSD", "  Id", "GPU 0 0.5 9",
        busy=[45, 50],
    ),
    "entities are GPUs, and instances of the only GPU": example(
        "#Entity GRACT", "ID", "GPU 2 0.5", "GPU-I 0 0.6", "GPU-I 1 0.7",
        gpus=(LoggedGpu(2, mig_enabled=True), LoggedGpu(2, mig_index=0), LoggedGpu(2, mig_index=1)),
    ),
    "an instance of an unknown GPU keeps the name that dcgmi gives": example(
        "#Entity GRACT", "ID", "GPU 0 0.5", "GPU 1 0.6", "GPU-I 4 0.7",
        gpus=(LoggedGpu(index=0), LoggedGpu(index=1), LoggedGpu(name="GPU-I 4")),
    ),
    "what is within an instance or outside of GPUs is passed over": example(
        "#Entity GRACT", "ID", "GPU 0 0.5", "GPU-CI 0 0.9", "Switch 1 0.1", busy=[50]
    ),
    "what is no row is counted": example(
        "#Entity GPUTL", "ID", "GPU 0 45", "Error: lost the host engine", "GPU 0", "GPU x 45",
        "GPU 0 45 7", "^C", "GPU 0 50", busy=[45, 50], skipped=5,
    ),
    "a log without a field of use says what to log": example(
        "#Entity POWER TMPTR", "ID", "GPU 0 61.5 40", refused="-e 203,252"
    ),
}  # fmt: skip


class TestExamples:
    test_is_read_as_expected = verified(EXAMPLES)
