"""What a GPU is asked beside its rings, field by field, each at its own pace."""
