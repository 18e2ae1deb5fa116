"""The training scripts of ``gpumon demo``, and what those in the folder ``examples`` share."""
