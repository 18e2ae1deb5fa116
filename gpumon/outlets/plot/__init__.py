"""Pictures of a log: laid out once, painted as SVG or PNG, or set in a page of its own."""
