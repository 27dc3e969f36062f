"""Serves trained models over HTTP, with a page to try them; not in the original release.

`python serve_model.py --help` lists the flags.
"""

from bert_tf.scripts import serve_model

if __name__ == "__main__":
    serve_model()
