"""Short ways to write down what a test is about."""
