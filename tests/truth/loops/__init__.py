"""Training loops beyond the project's own models, whose truth the simulation knows."""
