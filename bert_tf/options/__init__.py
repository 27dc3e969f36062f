"""What a script can be told: one frozen dataclass for each, with what scripts share as mix-ins.

A notebook makes the same objects that the command line makes:
`classification.run(ClassifierOptions(task_name="MRPC", ...))`.
"""

from bert_tf.options.classifier import ClassifierOptions
from bert_tf.options.conversion import ConversionOptions
from bert_tf.options.export import ExportOptions
from bert_tf.options.extraction import ExtractionOptions
from bert_tf.options.fine_tuning import FineTuningOptions, NerOptions, SquadOptions
from bert_tf.options.hub import HubClassifierOptions
from bert_tf.options.masked_words import MaskedWordsOptions
from bert_tf.options.pretraining import (
    PretrainingDataOptions,
    PretrainingOptions,
    VocabularyOptions,
)
from bert_tf.options.shared import DeviceOptions, EncoderOptions, ModelOptions, TrainingOptions

# What each script takes.
SCRIPTS = {
    "run_classifier": ClassifierOptions,
    "run_classifier_with_tfhub": HubClassifierOptions,
    "run_squad": SquadOptions,
    "run_ner": NerOptions,
    "extract_features": ExtractionOptions,
    "predict_masked": MaskedWordsOptions,
    "create_vocab": VocabularyOptions,
    "create_pretraining_data": PretrainingDataOptions,
    "run_pretraining": PretrainingOptions,
    "convert_checkpoint": ConversionOptions,
    "export_model": ExportOptions,
}

__all__ = [
    "SCRIPTS",
    "ClassifierOptions",
    "ConversionOptions",
    "DeviceOptions",
    "EncoderOptions",
    "ExportOptions",
    "ExtractionOptions",
    "FineTuningOptions",
    "HubClassifierOptions",
    "MaskedWordsOptions",
    "ModelOptions",
    "NerOptions",
    "PretrainingDataOptions",
    "PretrainingOptions",
    "SquadOptions",
    "TrainingOptions",
    "VocabularyOptions",
]
