"""``gpumon doctor``: what this machine can report, and what to do about the rest."""
