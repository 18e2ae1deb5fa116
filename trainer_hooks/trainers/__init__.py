"""What the adapters for Lightning and the Hugging Face Trainer are made of."""
