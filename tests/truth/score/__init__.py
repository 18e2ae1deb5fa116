"""How often the detector is right, on worlds whose truth is known; beside other tools' rules."""
