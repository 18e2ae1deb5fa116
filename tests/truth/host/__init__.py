"""Reasons of input stalls, under conditions that are really produced.

Nothing is simulated but the GPU: a worker that must compute computes, one that must read reads from
the device. ``python -m tests.truth.host`` runs them all and writes ``docs/host-truth.md``.
"""
