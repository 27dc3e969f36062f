"""The table of scripts: what each does, its options, and the functions behind it.

Functions and classes are named as `module:name` and imported when they are used, so that every
module may import the registry.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any


@dataclasses.dataclass(frozen=True)
class Script:
    """A row of the registry.

    Fine-tuning scripts have `make_task`: (options, config, tokenizer) -> `Task`. The others have
    `run`, which takes the options and does the work, and may have `make_answer`: (options) -> the
    function from the inputs of a `Predictor` to its predictions.

    `description` is the first line of `--help`; `environment` is set before anything is imported.
    """

    description: str
    options: str
    make_task: str | None = None
    run: str | None = None
    make_answer: str | None = None
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def options_class(self) -> type:
        """The class of the options."""
        return load(self.options)

    @property
    def has_predictor(self) -> bool:
        """Whether a `Predictor` can do the work of the script."""
        return bool(self.make_task or self.make_answer)


_TASKS = "bert_tf.tasks"
# For scripts that need no GPU: each worker of create_pretraining_data would take all its memory.
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}

SCRIPTS: Mapping[str, Script] = {
    "run_classifier": Script(
        "Fine-tunes and applies classifiers of texts and pairs.",
        options=f"{_TASKS}.classification.options:ClassifierOptions",
        make_task=f"{_TASKS}.classification.task:Classification",
    ),
    "run_classifier_with_tfhub": Script(
        "Fine-tunes encoders of TensorFlow Hub.",
        options=f"{_TASKS}.classification.hub_options:HubClassifierOptions",
        run=f"{_TASKS}.classification.hub:run",
    ),
    "run_squad": Script(
        "Fine-tunes and applies models that answer questions on texts (SQuAD).",
        options=f"{_TASKS}.question_answering.options:SquadOptions",
        make_task=f"{_TASKS}.question_answering.task:QuestionAnswering",
    ),
    "run_ner": Script(
        "Fine-tunes and applies models that label words, such as named entities.",
        options=f"{_TASKS}.token_classification.options:NerOptions",
        make_task=f"{_TASKS}.token_classification.task:TokenClassification",
    ),
    "run_multiple_choice": Script(
        "Fine-tunes and applies models that choose one of several endings of a text.",
        options=f"{_TASKS}.multiple_choice.options:MultipleChoiceOptions",
        make_task=f"{_TASKS}.multiple_choice.task:MultipleChoice",
    ),
    "extract_features": Script(
        "Writes an encoder's vectors of tokens or whole texts.",
        options=f"{_TASKS}.feature_extraction.options:ExtractionOptions",
        run=f"{_TASKS}.feature_extraction.extraction:run",
        make_answer=f"{_TASKS}.feature_extraction.extraction:make_answer",
    ),
    "predict_masked": Script(
        "Fills [MASK] in texts with the words a model expects.",
        options=f"{_TASKS}.fill_mask.options:MaskedWordsOptions",
        run=f"{_TASKS}.fill_mask.fill_mask:run",
        make_answer=f"{_TASKS}.fill_mask.fill_mask:make_answer",
    ),
    "create_vocab": Script(
        "Learns a WordPiece vocabulary from texts.",
        options=f"{_TASKS}.pretraining.options:VocabularyOptions",
        run=f"{_TASKS}.pretraining.create_vocab:run",
    ),
    "create_pretraining_data": Script(
        "Makes records for pre-training from texts.",
        options=f"{_TASKS}.pretraining.options:PretrainingDataOptions",
        run=f"{_TASKS}.pretraining.create_data:run",
        # Workers can be forked only without NumPy's threads, see `parallel_for`.
        environment={**_NO_GPU, "OPENBLAS_NUM_THREADS": "1"},
    ),
    "run_pretraining": Script(
        "Trains a model on masked words and next sentences.",
        options=f"{_TASKS}.pretraining.options:PretrainingOptions",
        run=f"{_TASKS}.pretraining.training:run",
    ),
    "convert_checkpoint": Script(
        "Converts models: the original's, Hugging Face's, Keras'.",
        options=f"{_TASKS}.conversion.options:ConversionOptions",
        run=f"{_TASKS}.conversion.conversion:run",
        environment=_NO_GPU,
    ),
    "export_model": Script(
        "Writes a trained model as a SavedModel, to serve it.",
        options=f"{_TASKS}.export_model.options:ExportOptions",
        run=f"{_TASKS}.export_model.export_model:run",
    ),
}


def load(reference: str) -> Any:
    """Imports what `module:name` refers to."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def script_of(options_class: type) -> str:
    """Returns the script whose options are of a class."""
    reference = f"{options_class.__module__}:{options_class.__qualname__}"
    return {script.options: name for name, script in SCRIPTS.items()}[reference]


def runner(name: str) -> Callable[[Any], Any]:
    """Returns the function that does the work of a script, given its options."""
    # TensorFlow must be imported quietly, and before Keras.
    import_module("bert_tf.backend")
    script = SCRIPTS[name]
    if script.make_task:
        return partial(load("bert_tf.finetuning.run:run"), load(script.make_task))
    return load(script.run or "")


def run(options: Any) -> Any:
    """Does the work of the script that the options belong to, and returns its results."""
    return runner(script_of(type(options)))(options)
