"""The models of a server: what they take, and what they return."""

import contextlib
import json
import threading
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.api.predictor import Predictor
from bert_tf.base import files
from bert_tf.base.errors import UserError, note, silent, warn
from bert_tf.checkpoints.run_folder import CONFIG, RUN, RunFolder
from bert_tf.finetuning import run_metadata
from bert_tf.finetuning.encoder import vector_spec
from bert_tf.options import registry
from bert_tf.serving.options import ServingOptions

# The dtype policy, which models are built with, is one for the whole process.
_LOADING = threading.Lock()
_TYPES = {str: "DT_STRING", int: "DT_INT32", float: "DT_FLOAT"}


class Kind(NamedTuple):
    """What the models of a script take, and which routes they serve besides `:predict`."""

    task: str  # Hugging Face's name
    expected: str
    counts: Collection[int]  # allowed numbers of texts
    sample: Any  # an input, for the first computation
    routes: tuple[str, ...] = ()


_ENCODER = Kind("feature-extraction", "text", (1,), "A", ("/embed", "/v1/embeddings"))
_RERANK = ("/rerank", "/v1/rerank", "/v2/rerank")
_CHOICE = ("A", "B", "C")
KINDS = {
    "run_classifier": Kind(
        "text-classification", "text, or text and text_pair", (1, 2), "A", ("/predict",)
    ),
    "run_ranking": Kind("text-ranking", "query and passage", (2,), ("A", "B"), _RERANK),
    "run_squad": Kind("question-answering", "question and context", (2,), ("A", "B")),
    "run_ner": Kind("token-classification", "text, or words", (1,), "A"),
    "run_multiple_choice": Kind("multiple-choice", "context and endings", range(3, 1000), _CHOICE),
    "run_embeddings": _ENCODER,
    "extract_features": _ENCODER,
    "predict_masked": Kind("fill-mask", "text with [MASK]", (1,), "A [MASK]"),
}


class Model:
    """A model, which `load` reads; raises a UserError if its folder or the flags are not valid.

    Attributes:
        name: its name in the routes.
        kind: what it takes.
        explains: whether its predictions can be explained.
        max_length: maximum number of tokens that it reads at once.
        prompts: kind of text -> prefix that it needs, as the folder declares; never added.
        run: its folder.
        predictor: the model, once it is loaded.
        outputs: name -> type of its outputs, once it is loaded.
    """

    def __init__(self, name: str, folder: str, options: ServingOptions) -> None:
        self.name, self.outputs = name, dict[str, str]()
        self.predictor: Predictor | None = None
        self._reply_bytes = 0  # for the sample
        names, defaults = ("engine", "precision", "jit_compile", "max_seq_length"), ServingOptions()
        flags = {n: x for n in names if (x := getattr(options, n)) != getattr(defaults, n)}
        self.run = run = RunFolder.of(folder)
        run.require_one_run()
        if not (run.script or run.find(CONFIG) or folder.endswith(".keras")):
            advice = "Pass an output_dir, or convert the model: convert_checkpoint.py --to=original"
            found = files.describe_parent(run.file(RUN))
            raise UserError(f"no {RUN} and no {CONFIG} ({found})", at=folder, fix=advice)
        # Pre-trained models are for any script.
        script = options.script if run.script in (None, "run_pretraining") else None
        script = script or (None if run.script else "extract_features")
        spec = None
        if script == "extract_features":
            spec = vector_spec(run, options.pooling, default="mean")
            if options.pooling == "auto" and not spec.is_declared:
                note("Serving the mean of the last layer: no pooling is declared", at=folder)
            pooling = "auto" if spec.is_declared else spec.pooling
            flags |= {"pooling": pooling, "layers": "-1"}
        self._options = run_metadata.options_for_model(folder, script, **flags)
        # A task that extends that of a script is served as that script's.
        classes = {name: registry.SCRIPTS[name].options_class for name in KINDS}
        extended = [name for name, x in classes.items() if isinstance(self._options, x)]
        if not extended:
            script = registry.script_of(type(self._options))
            raise UserError(f"models of {script} cannot be served", at=folder)
        self._script = extended[0]
        self.explains = self._script == "run_classifier" and options.engine == "tensorflow"
        self.kind, self.max_length = KINDS[self._script], self._options.max_seq_length
        self.prompts: dict[str, str] = {}
        if self.kind is _ENCODER:
            prompts = (spec or vector_spec(run)).prompts
            self.prompts = {kind: text for kind, text in prompts.items() if text}
        if self.prompts:
            note(f"No prompt is added to the texts: {self.prompts}", at=name)
        used: Any = self._options
        if self._script == "run_embeddings" and options.pooling not in ("auto", used.pooling):
            warn(f"--pooling={options.pooling} has no effect on {name}: it has {used.pooling}")

    def load(self) -> Predictor:
        """Loads the model, and computes an input, so that the first request takes no longer."""
        with _LOADING:
            self.predictor = predictor = Predictor(self._options)
        if predictor.takes_pairs is False and 1 in self.kind.counts:
            self.kind = self.kind._replace(expected="text", counts=(1,))
        # Neither a warning, such as that a text should be a pair, nor an error concerns the user:
        # the model may need entity markers.
        with silent(), contextlib.suppress(UserError):
            outputs = outputs_of(predictor(self.kind.sample))
            self.outputs = {name: _TYPES.get(_type(x), "DT_STRING") for name, x in outputs.items()}
            self._reply_bytes = len(json.dumps([*outputs.values()]))
            # Of several numbers, a request does not say which to explain.
            self.explains &= not isinstance(outputs.get("values"), list)
        return predictor

    @property
    def labels(self) -> list[str]:
        """The labels of its outputs; [] if it has none, or is not loaded yet."""
        return self.predictor.labels if self.predictor else []

    def costs(self, inputs: Sequence[Any]) -> list[tuple[int, int]]:
        """Returns the number of tokens of each input, and of those that the model reads."""
        counts = self.predictor.num_tokens(inputs) if self.predictor else []
        splits = self._script in ("run_squad", "run_ner", "run_multiple_choice")
        if splits or getattr(self._options, "long_text", "") == "windows":
            return [(count, count) for count in counts]
        # A model that predicts words reads the text once for each.
        is_masked = self.kind.task == "fill-mask"
        rows = [max(text.count("[MASK]"), 1) if is_masked else 1 for text in inputs]
        pairs = zip(counts, rows, strict=True)
        return [(count, num_rows * min(count, self.max_length)) for count, num_rows in pairs]

    def reply_bytes(self, cost: int) -> int:
        """Estimates the part of a reply for an input of `cost` tokens."""
        return self._reply_bytes * (cost if self.kind.task == "token-classification" else 1)

    def require(self, route: str) -> None:
        """Raises a UserError that names the right route, unless the model serves `route`."""
        if route not in self.kind.routes:
            right = [f"/v1/models/{self.name}:predict", *self.kind.routes]
            kind = f"{self.name} is a model for {self.kind.task}"
            advice = f"Call POST {' or '.join(right)}"
            raise UserError(f"{route} needs another model: {kind}", fix=advice)


def _type(value: Any) -> type:
    return _type(value[0]) if isinstance(value, list) and value else type(value)


def vector_of(prediction: Any) -> np.ndarray:
    """Returns the vector, float32 [D], that an encoder predicted."""
    return prediction if isinstance(prediction, np.ndarray) else prediction.values[-1]


def scores_of(prediction: Any) -> dict[str, float]:
    """Returns label -> probability, or name -> number, that a classifier predicted."""
    values = getattr(prediction, "probabilities", prediction)
    return values if isinstance(values, dict) else {"LABEL_0": values}


def outputs_of(prediction: Any) -> dict[str, Any]:
    """Returns the outputs for an input by name: those of the SavedModel, if it takes texts.

    Answers and entities, which a SavedModel leaves to its caller, are those of a `Predictor`.
    """
    if isinstance(prediction, float | dict):
        values = [*scores_of(prediction).values()]
        return {"values": values if isinstance(prediction, dict) else prediction}
    if isinstance(prediction, list):
        return {"masks": [[candidate._asdict() for candidate in mask] for mask in prediction]}
    if hasattr(prediction, "spans"):
        return _spans_of(prediction)
    if hasattr(prediction, "score") or hasattr(prediction, "ending"):
        return prediction._asdict()
    if hasattr(prediction, "probabilities"):
        label = {"label": prediction.label} if hasattr(prediction, "label") else {}
        return {"probabilities": [*scores_of(prediction).values()], **label}
    return {"sentence_embedding": vector_of(prediction).tolist()}


def _spans_of(prediction: Any) -> dict[str, Any]:
    spans = [{**span._asdict(), "score": span.probability} for span in prediction.spans]
    for span in spans:
        del span["probability"]
    if hasattr(prediction, "words"):
        words = {"words": prediction.words, "labels": prediction.labels}
        return {**words, "probabilities": prediction.probabilities, "entities": spans}
    answer = next((x for x in spans if x["text"] == prediction.text), {})
    place = {name: answer.get(name) for name in ("score", "start", "end")}
    return {"answer": prediction.text, **place, "n_best": spans, "null_odds": prediction.null_odds}
