"""Fine-tunes, evaluates and predicts which ending of a text is right.

`python run_multiple_choice.py --help` lists the flags.
"""

from bert_tf.scripts import run_multiple_choice

if __name__ == "__main__":
    run_multiple_choice()
