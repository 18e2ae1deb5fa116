"""The one room that speaks to NVIDIA's driver: from one C call up to a ``Frame`` of all GPUs.

What a board is asked every few seconds stands in ``fields``, what ``gpumon doctor`` asks once in
``probe``.
"""
