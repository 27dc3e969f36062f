"""Writes the vectors that a trained encoder computes for the tokens of texts, or for whole texts.

Has the original release's flags and more: `python extract_features.py --help` lists them.
"""

from bert_tf.scripts import extract_features


def __getattr__(name: str) -> object:
    """Returns a name that programs import from the original's script; imports it on demand."""
    from bert_tf.compat import extract_features as original

    if name == "__all__":
        return [public for public in vars(original) if not public.startswith("_")]
    return getattr(original, name)


if __name__ == "__main__":
    extract_features()
