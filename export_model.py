"""Exports a trained model as a SavedModel for serving, or as ONNX or LiteRT.

Not in the original release. `python export_model.py --help` lists the flags.
"""

from bert_tf.scripts import export_model

if __name__ == "__main__":
    export_model()
