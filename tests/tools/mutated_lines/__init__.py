"""Breaks random lines of the product, one at a time, and reports which the tests notice."""
