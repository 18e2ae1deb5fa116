"""Where a step fetches its batch and where it computes, and which phases that makes.

For Keras there is a ``tap`` on each backend, which tells the ``phase_machine``; the adapters of
``trainers`` take what counts samples and what times compiling.
"""
