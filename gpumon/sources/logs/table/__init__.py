"""Columns, headings and cells of tables, and the GPU of a row."""
