"""``/metrics``: the table of all metrics, their values, and their export."""
