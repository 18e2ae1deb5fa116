"""Where a training step fetches its batch and where it computes, and the phases that follow.

For Keras there is a ``tap`` per backend, which drives the ``phase_machine``; the adapters of
``trainers`` use the counting of samples and the timing of compilation.
"""
