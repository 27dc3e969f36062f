"""Models over rows: batches of similar length, by TensorFlow or ONNX Runtime."""
