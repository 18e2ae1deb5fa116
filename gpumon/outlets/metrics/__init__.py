"""``/metrics``: the table of all metrics, their values, and the one who knows prometheus_client."""
