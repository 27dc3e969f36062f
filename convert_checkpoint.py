"""Converts a model to a different format: the original's, Hugging Face's or Keras'.

Not in the original release. `python convert_checkpoint.py --help` lists the flags.
"""

from bert_tf.scripts import convert_checkpoint

if __name__ == "__main__":
    convert_checkpoint()
