"""Where Keras waits for its input on TensorFlow: one step an execution, or several."""
