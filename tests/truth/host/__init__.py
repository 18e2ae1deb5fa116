"""Why a batch was late: conditions that are really produced, and the reasons that are told of them.

Nothing here is made up: a worker that is to compute computes, one that is to read reads from the
device. ``python -m tests.truth.host`` runs them all and writes ``docs/host-truth.md``.
"""
