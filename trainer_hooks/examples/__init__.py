"""The trainings that ``gpumon demo`` starts, and what those in the folder ``examples`` share."""
