"""Writes a model in another format: the original's, Hugging Face's, or Keras'.

`python convert_checkpoint.py --help` lists the flags.
"""

from bert_tf.scripts import convert_checkpoint

if __name__ == "__main__":
    convert_checkpoint()
