"""Columns, headings and cells of logs that are tables: what each says, and of which GPU."""
