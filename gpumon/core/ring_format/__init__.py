"""The phase ring: its bytes, its records, what a run says of itself, and where rings lie.

Shared by the training that writes (``trainer_hooks.ring``) and the daemon that reads
(``sources.ring_reader``), so that there is one format. No file is opened here.
"""
