"""Turn readings, states and reports into bytes: recordings, metrics, pages, text, pictures."""
