"""How the words of a ring are stored: several by one call, each a single store."""

from __future__ import annotations

from struct import Struct
from typing import Final

from gpumon.core.phase import PHASES, TrainingPhase
from gpumon.core.ring_format import RECORD_WORDS, T_PHASES, T_XOR, TOTALS_AT_WORDS, TOTALS_WORDS

# In the machine's own byte order, each word is one store.
put_record: Final = Struct(f"@{RECORD_WORDS}Q").pack_into
put_two_records: Final = Struct(f"@{2 * RECORD_WORDS}Q").pack_into
put_totals: Final = Struct(f"@{TOTALS_WORDS}Q").pack_into
TOTALS_AT_BYTES: Final = tuple(8 * at for at in TOTALS_AT_WORDS)
NO_WORDS: Final = (0,) * (T_XOR - T_PHASES - len(PHASES))
"""Of the totals, those that no phase needs yet."""

LASTS: Final = tuple(
    phase
    not in (
        TrainingPhase.INPUT_WAIT,
        TrainingPhase.HOST_TO_DEVICE,
        TrainingPhase.TRAIN_STEP,
        TrainingPhase.DEVICE_SYNC,
        TrainingPhase.CALLBACKS,
    )
    for phase in PHASES
)
"""By the phase's number: whether it is no part of a step."""
