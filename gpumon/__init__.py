"""How much GPU time is lost, to what, and what to change first."""

__version__ = "0.1.0"
