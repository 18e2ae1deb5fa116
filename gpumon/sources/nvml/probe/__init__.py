"""Asks a driver everything once by the sampler's own calls, and notes what it answered and cost.

``probe`` asks, ``probed`` is what it found. What is asked stands in ``fields``, what is told to
people in ``gpumon.cli.doctor``.
"""
