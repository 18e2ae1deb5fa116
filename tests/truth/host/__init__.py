"""Reasons of input stalls, under conditions that are really produced.

Only the GPU is simulated: workers really compute, or really read from a device.
``python -m tests.truth.host`` runs all conditions and writes ``docs/host-truth.md``.
"""
