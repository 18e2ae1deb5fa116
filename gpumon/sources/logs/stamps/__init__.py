"""What the stamps of a log mean, and its rows in order of time."""
