"""For each cause and reason, a training run before and after the change that gpumon advises.

``python -m tests.truth.advice`` runs them under a real daemon and writes docs/advice-bounds.md.
"""
