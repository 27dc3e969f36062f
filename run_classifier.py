"""Fine-tunes, evaluates and predicts classes of texts and of pairs of texts.

The command line of the original release: `python run_classifier.py --helpfull` lists the flags.
"""

from bert_tf.scripts import run_classifier


def __getattr__(name: str) -> object:
    """What programs import from the original's script, loaded when it is asked for."""
    from bert_tf.compat import run_classifier as original

    if name == "__all__":
        return [known for known in vars(original) if not known.startswith("_")]
    return getattr(original, name)


if __name__ == "__main__":
    run_classifier()
