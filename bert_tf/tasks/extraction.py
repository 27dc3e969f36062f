"""Public alias of `bert_tf.tasks.feature_extraction.extraction`."""

from bert_tf.tasks.feature_extraction.extraction import run as run
from bert_tf.tasks.feature_extraction.extractor import Extractor as Extractor
