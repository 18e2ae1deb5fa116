"""How often the detector is right on workloads of known truth, next to other tools' rules."""
