"""Fine-tunes on words with labels, labels words, and scores entities (CoNLL-2003).

Section 5.3 of the paper; the original release has no such script: `python run_ner.py --helpfull`
lists the flags.
"""

from bert_tf.scripts import run_ner

if __name__ == "__main__":
    run_ner()
