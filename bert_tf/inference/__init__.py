"""Inference in batches of rows of similar length, with TensorFlow, ONNX Runtime or LiteRT."""
