"""Makes lines of the product wrong, one at a time, and says which the tests notice."""
