"""Registry of scripts: the description, options and functions of each.

Functions and classes are registered as `module:name` and imported on use, so that any module may
import the registry.
"""

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from bert_tf.base.errors import UserError, telling_once


@dataclasses.dataclass(frozen=True)
class Script:
    """An entry of the registry. Fine-tuning scripts have `make_task`, all others have `run`.

    Attributes:
        description: first line of `--help`.
        example: flags of the command that `--help` shows.
        options: `module:name` of the options class.
        make_task: `module:name` of (options, config, tokenizer) -> `Task`.
        run: `module:name` of (options) -> result, which does the work.
        make_predict_fn: `module:name` of (options) -> function from `Predictor` inputs to outputs.
        head: name of the model's head for `convert_checkpoint.py`, which is that of its
            `head_format`; here, too, because `--help` must not import Keras.
        model: `module:name` of the model's class.
        environment: environment variables to set before anything is imported.
    """

    description: str
    options: str | type
    make_task: str | Callable[..., Any] | None = None
    run: str | None = None
    make_predict_fn: str | None = None
    example: str = ""
    head: str | None = None
    model: str | type | None = None
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def options_class(self) -> type:
        """The class of the script's options."""
        return load(self.options)

    @property
    def has_predictor(self) -> bool:
        """Whether a `Predictor` can be created from the script's options."""
        return bool(self.make_task or self.make_predict_fn)


_BERT = "--init_checkpoint=uncased_L-12_H-768_A-12"
_RUN = "--do_train --do_eval --output_dir=output"
_TRAIN = f"{_BERT} {_RUN}"
_TASKS, _COMMANDS = "bert_tf.tasks", "bert_tf.commands"
# For scripts that need no GPU: each worker of create_pretraining_data would reserve a GPU's memory.
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}

_own_tasks: dict[str, Script] = {}

SCRIPTS: Mapping[str, Script] = {
    "run_pretraining": Script(
        "Pre-trains a model on masked tokens and next sentences.",
        example=f"--input_file=records.tfrecord {_TRAIN}",
        options=f"{_TASKS}.pretraining.options:PretrainingOptions",
        run=f"{_TASKS}.pretraining.training:run",
        head="pretraining",
        model="bert_tf.modeling:BertPretrainer",
    ),
    "run_classifier": Script(
        "Fine-tunes and applies classifiers of texts and text pairs.",
        example=f"--task_name=tsv --data_dir=data --text_column=text --label_column=label {_TRAIN}",
        options=f"{_TASKS}.classification.options:ClassifierOptions",
        make_task=f"{_TASKS}.classification.task:Classification",
        head="classification",
        model="bert_tf.modeling:BertClassifier",
    ),
    "run_classifier_with_tfhub": Script(
        "Fine-tunes encoders from TensorFlow Hub.",
        example=f"--bert_hub_module_handle=encoder --task_name=MRPC --data_dir=MRPC {_RUN}",
        options=f"{_TASKS}.classification.options:HubClassifierOptions",
        run=f"{_TASKS}.classification.hub:run",
    ),
    "run_squad": Script(
        "Fine-tunes and applies models that answer questions about texts (SQuAD).",
        example=f"--train_file=train-v1.1.json --predict_file=dev-v1.1.json {_TRAIN}",
        options=f"{_TASKS}.question_answering.options:SquadOptions",
        make_task=f"{_TASKS}.question_answering.task:QuestionAnswering",
        head="span",
        model="bert_tf.modeling:BertSpanLabeler",
    ),
    "run_ner": Script(
        "Fine-tunes and applies models that label words, for instance as named entities.",
        example=f"--data_dir=conll2003 {_TRAIN}",
        options=f"{_TASKS}.token_classification.options:NerOptions",
        make_task=f"{_TASKS}.token_classification.task:TokenClassification",
        head="token",
        model="bert_tf.modeling:BertTokenClassifier",
    ),
    "run_multiple_choice": Script(
        "Fine-tunes and applies models that choose one of several endings of a text.",
        example=f"--data_dir=swag {_TRAIN}",
        options=f"{_TASKS}.multiple_choice.options:MultipleChoiceOptions",
        make_task=f"{_TASKS}.multiple_choice.task:MultipleChoice",
        head="multiple_choice",
        model=f"{_TASKS}.multiple_choice.model:BertMultipleChoice",
    ),
    "run_embeddings": Script(
        "Trains and evaluates encoders whose vectors say which texts match.",
        example=f"--data_dir=data --anchor_column=question --positive_column=answer {_TRAIN}",
        options=f"{_TASKS}.embeddings.options:EmbeddingsOptions",
        make_task=f"{_TASKS}.embeddings.task:Embeddings",
    ),
    "run_ranking": Script(
        "Trains and applies models that say how relevant a passage is to a query.",
        example=f"--data_dir=data --anchor_column=question --positive_column=answer {_TRAIN}",
        options=f"{_TASKS}.ranking.options:RankingOptions",
        make_task=f"{_TASKS}.ranking.task:Ranking",
        head="classification",
        model=f"{_TASKS}.ranking.model:BertCrossEncoder",
    ),
    "extract_features": Script(
        "Writes an encoder's vectors for tokens or whole texts.",
        example=f"--input_file=texts.txt --output_file=vectors.npz --pooling=mean {_BERT}",
        options=f"{_TASKS}.feature_extraction.options:ExtractionOptions",
        run=f"{_TASKS}.feature_extraction.extraction:run",
        make_predict_fn=f"{_TASKS}.feature_extraction.extraction:Extractor",
        head="encoder",
        model="bert_tf.modeling:BertModel",
    ),
    "search_texts": Script(
        "Finds texts by meaning: builds an index of their vectors, and answers queries.",
        example="--index_dir=index --input_file=texts.txt --init_checkpoint=encoder",
        options="bert_tf.search.options:SearchOptions",
        run="bert_tf.search.run:run",
    ),
    "predict_masked": Script(
        "Predicts the words for [MASK] in texts.",
        example=f"--input_file=texts.txt {_BERT}",
        options=f"{_TASKS}.fill_mask.options:MaskedWordsOptions",
        run=f"{_TASKS}.fill_mask.fill_mask:run",
        make_predict_fn=f"{_TASKS}.fill_mask.fill_mask:FillMask",
    ),
    "create_vocab": Script(
        "Learns a WordPiece vocabulary from texts.",
        example="--input_file=books --output_file=vocab.txt --vocab_size=8000",
        options=f"{_COMMANDS}.options:VocabularyOptions",
        run=f"{_COMMANDS}.create_vocab:run",
    ),
    "create_pretraining_data": Script(
        "Creates pre-training records from texts.",
        example="--input_file=books --output_file=records.tfrecord --vocab_file=vocab.txt",
        options=f"{_TASKS}.pretraining.options:PretrainingDataOptions",
        run=f"{_TASKS}.pretraining.create_data:run",
        # Workers can be forked only if NumPy has started no threads, see `parallel_for`.
        environment={**_NO_GPU, "OPENBLAS_NUM_THREADS": "1"},
    ),
    "convert_checkpoint": Script(
        "Converts models between the original's format, Hugging Face's and Keras'.",
        example="--input=uncased_L-12_H-768_A-12 --output=bert_hf --to=hugging_face",
        options=f"{_COMMANDS}.options:ConversionOptions",
        run=f"{_COMMANDS}.convert_checkpoint:run",
        environment=_NO_GPU,
    ),
    "export_model": Script(
        "Exports a trained model as a SavedModel for serving, or as ONNX or LiteRT.",
        example="--model_dir=output --export_dir=served",
        options=f"{_COMMANDS}.options:ExportOptions",
        run=f"{_COMMANDS}.export_model:run",
    ),
    "serve_model": Script(
        "Serves trained models over HTTP, with a page to try them.",
        example="--model_dir=output --port=8501",
        options="bert_tf.serving.options:ServingOptions",
        run="bert_tf.serving.server:run",
    ),
}


def register(
    name: str,
    options: type,
    make_task: Callable[..., Any],
    description: str = "",
    model: str | type | None = None,
) -> None:
    """Registers a fine-tuning task of another package, so that `run` and `Predictor` know it.

    Call this where the task is defined: a program must import that module before it uses a model.

    Args:
        name: recorded in `run.json`; must stay the same.
        options: the task's options, a subclass of `FineTuningOptions`.
        make_task: (options, config, tokenizer) -> `Task`; usually its class.
        description: one line.
        model: the model's class, or its `module:name`. It is needed to convert models whose class
            has a `head_format`.
    """
    if name in SCRIPTS:
        raise ValueError(f"{name} is the name of a script")
    _own_tasks[name] = Script(description, options=options, make_task=make_task, model=model)


def entries() -> dict[str, Script]:
    """Returns the scripts, and the tasks of other packages."""
    return {**SCRIPTS, **_own_tasks}


def load(reference: Any) -> Any:
    """Imports and returns the object that `module:name` refers to; returns other objects."""
    if not isinstance(reference, str):
        return reference
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def script_of(options_class: type) -> str:
    """Returns the name of the script whose options have the given class."""
    reference = f"{options_class.__module__}:{options_class.__qualname__}"
    names = {script.options: name for name, script in entries().items()}
    name = names.get(reference) or names.get(options_class)
    if name is None:
        name = options_class.__name__
        raise UserError(f"{name} belongs to no registered task: call bert_tf.register")
    return name


def get_runner(name: str) -> Callable[[Any], Any]:
    """Returns the function, (options) -> result, that does the work of a script."""
    # Imports TensorFlow quietly, and before Keras.
    load("bert_tf.base.backend:tf")
    script = entries()[name]
    if script.make_task:
        return partial(load("bert_tf.finetuning.run:run"), load(script.make_task))
    return load(script.run or "")


def run(options: Any) -> Any:
    """Runs the script that the options belong to.

    Args:
        options: the options of a script, such as `bert_tf.options.ClassifierOptions`.

    Returns:
        What the script's function returns; for training and fine-tuning scripts,
        `bert_tf.runs.output_dir.Results`: metrics of the evaluation, and paths of the output
        files.

    Raises:
        UserError: options, configuration, vocabulary, checkpoint or data are invalid, in which
            case `output_dir` (with `num_runs`, that run's) is unchanged; or writing fails.
    """
    with telling_once():
        return get_runner(script_of(type(options)))(options)
