"""Fine-tunes and evaluates classifiers of texts and text pairs, and writes their predictions.

Has the original release's flags and more: `python run_classifier.py --help` lists them.
"""

from bert_tf.scripts import run_classifier


def __getattr__(name: str) -> object:
    """Returns a name that programs import from the original's script; imports it on demand."""
    from bert_tf.compat import run_classifier as original

    if name == "__all__":
        return [public for public in vars(original) if not public.startswith("_")]
    return getattr(original, name)


if __name__ == "__main__":
    run_classifier()
