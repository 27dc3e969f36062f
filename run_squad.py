"""Fine-tunes on questions about texts, answers them, and scores the answers (SQuAD 1.1 and 2.0).

The command line of the original release: `python run_squad.py --helpfull` lists the flags.
"""

from bert_tf.scripts import run_squad


def __getattr__(name: str) -> object:
    """What programs import from the original's script, loaded when it is asked for."""
    from bert_tf.compat import run_squad as original

    if name == "__all__":
        return [known for known in vars(original) if not known.startswith("_")]
    return getattr(original, name)


if __name__ == "__main__":
    run_squad()
