"""Fine-tunes models that answer questions about texts, and scores the answers (SQuAD 1.1, 2.0).

Has the original release's flags and more: `python run_squad.py --help` lists them.
"""

from bert_tf.scripts import run_squad


def __getattr__(name: str) -> object:
    """Returns a name that programs import from the original's script; imports it on demand."""
    from bert_tf.compat import run_squad as original

    if name == "__all__":
        return [public for public in vars(original) if not public.startswith("_")]
    return getattr(original, name)


if __name__ == "__main__":
    run_squad()
