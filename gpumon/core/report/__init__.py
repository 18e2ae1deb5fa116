"""The report as a value: where the GPU time of a log, a daemon or a recording went."""
