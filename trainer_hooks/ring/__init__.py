"""The ring file of a training process: made, written, and what it says of the run.

Beside it, what comes back: ``daemon_state``, ``daemon_counters`` and ``gpu_doubts`` read what the
daemon says of this run's GPUs. And what lets every hook be a quiet guest: ``call_frames`` knows
whose code calls, and leaves no trace in it; ``quiet_warning`` warns there, and ends no training;
``cuda_captures`` lets a thread use CUDA beside a training that captures a graph.
"""
