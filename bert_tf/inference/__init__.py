"""Inference over rows in batches of similar length, with TensorFlow or ONNX Runtime."""
