"""Writes what a trained encoder makes of texts: vectors of tokens, or of whole texts.

The command line of the original release: `python extract_features.py --helpfull` lists the flags.
"""

from bert_tf.scripts import extract_features


def __getattr__(name: str) -> object:
    """What programs import from the original's script, loaded when it is asked for."""
    from bert_tf.compat import extract_features as original

    if name == "__all__":
        return [known for known in vars(original) if not known.startswith("_")]
    return getattr(original, name)


if __name__ == "__main__":
    extract_features()
