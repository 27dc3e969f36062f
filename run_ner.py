"""Fine-tunes models that label words, for instance as named entities (CoNLL-2003).

The paper's section 5.3; not in the original release. `python run_ner.py --help` lists the flags.
"""

from bert_tf.scripts import run_ner

if __name__ == "__main__":
    run_ner()
