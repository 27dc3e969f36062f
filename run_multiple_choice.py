"""Fine-tunes and evaluates models that choose the right ending of a text.

Not in the original release. `python run_multiple_choice.py --help` lists the flags.
"""

from bert_tf.scripts import run_multiple_choice

if __name__ == "__main__":
    run_multiple_choice()
