"""Every private name of the Hugging Face ``Trainer`` that its tagger looks at.

Seen in transformers 4.46 and 5. Where one is gone, or is called otherwise, the tagger knows less:
what would have been told apart stays in the phase around it, and the training is the same.
"""

from __future__ import annotations

from typing import Final

MEMORY: Final = "_memory_tracker"
"""The first thing that an evaluation asks: else one outside of ``train`` is not seen."""
SAVES_CHECKPOINT: Final = "_save_checkpoint"
"""Writes a checkpoint in the loop: else that is ``callbacks``."""
MAY_CATCH: Final = ("_maybe_log_save_evaluate", "_evaluate")
"""Called from the loop: in a user's own, what they call may raise and be caught."""
