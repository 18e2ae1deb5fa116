"""How often the detector is right, on workloads whose truth is known; beside other tools' rules."""
