"""The ring file of a training process: made, written, and what it says of the run."""
