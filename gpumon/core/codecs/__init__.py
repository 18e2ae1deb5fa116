"""Report, state and recording as JSON, and back."""
