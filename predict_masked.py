"""Fills [MASK] in texts with the words that a trained model expects there.

The original release has no such script: `python predict_masked.py --help` lists the flags.
"""

from bert_tf.scripts import predict_masked

if __name__ == "__main__":
    predict_masked()
