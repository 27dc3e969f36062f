"""Makes the predictions of a `Predictor` with a fine-tuned model, and checks its inputs."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_tf import checkpoints
from bert_tf.base.errors import Input, UserError, counted, warn
from bert_tf.checkpoints import formats
from bert_tf.checkpoints.run_folder import RunFolder
from bert_tf.data.packing import CUT_TOKENS
from bert_tf.finetuning.engines import loaded, open_model
from bert_tf.finetuning.model_files import read_model_files
from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.finetuning.run_checks import give_schema
from bert_tf.finetuning.task import MakeTask
from bert_tf.tokenization import FullTokenizer
from bert_tf.tokenization.fast import BatchTokenizer, find_problems

# Ends the message about an input that may be the row of a table.
TABLE_ADVICE = '. Of a table, pass the column of the texts, such as df["text"]'
_NUM_CHECKED = 30


class TaskPredictor:
    """Predicts with a task's model in `output_dir`; thread-safe."""

    def __init__(self, make_task: MakeTask, options: FineTuningOptions) -> None:
        folder = RunFolder.used_by(options)
        model_files = read_model_files(options, export=folder.path)
        self._task = task = give_schema(make_task(*model_files))
        self._model: Any = None  # for `explain`; stays None if the folder is an export

        def load(model: Any) -> None:
            source = formats.find_source(folder.model) if folder.model else folder.checkpoint()
            train = f"bert_tf.run({type(options).__name__}(do_train=True, ...))"
            advice = f". If the model has not been fine-tuned for this task, train it: {train}"
            checkpoints.load_weights(model, source).require_exact(advice)
            self._model = model

        self._check_texts = TextCheck(model_files[2])
        self._inference = open_model(
            folder,
            loaded(task.build_model, load),
            task.fetch,
            task.features("predict"),
            task.options,
            task.options.predict_batch_size,
            schema=task.schema,
        )
        self._warned_of_truncation = False
        self.labels = task.schema.labels
        self.inputs_are_independent = task.traits.inputs_are_independent
        self.takes_pairs = task.traits.takes_pairs
        own = getattr(task, "tokenizer", None)
        self.tokenizer = own if isinstance(own, BatchTokenizer) else BatchTokenizer(model_files[2])

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Returns a prediction for each input."""
        examples = self._task.from_inputs(inputs)
        self._check_texts(inputs)
        rows = self._task.featurize(examples, "predict")
        num_cut = np.count_nonzero(rows.get(CUT_TOKENS, ()))
        if num_cut and not self._warned_of_truncation:
            self._warned_of_truncation = True
            lengths = {f.shape[-1] for f in self._task.features("predict") if f.per_token}
            limit = f"max_seq_length={max(lengths)}" if len(lengths) == 1 else "allowed"
            cut = f"are longer than {limit} and were truncated (logged once)"
            warn(counted(int(num_cut), "input", cut, of=len(inputs)))
        outputs = self._inference.predict(rows)
        return list(self._task.decode(examples, outputs))

    def explain(self, item: Any, label: str | None, steps: int) -> Any:
        """Explains the prediction for an input, see `Predictor.explain`."""
        if self._task.options.engine != "tensorflow":
            raise UserError('explain() needs gradients: pass engine="tensorflow" to Predictor')
        return self._task.explain(self._model, item, self([item])[0], label, steps)


def require_texts(inputs: Sequence[Any], counts: Sequence[int], expected: str) -> None:
    """Raises a UserError unless each input is a string, or a tuple of strings of allowed length.

    `counts` lists the allowed numbers of strings; a string that is not in a tuple counts as 1.
    `expected` describes a valid input for the message.
    """
    for index, item in enumerate(inputs):
        texts = item if isinstance(item, tuple) else (item,)
        if not all(isinstance(text, str) for text in texts) or len(texts) not in counts:
            advice = TABLE_ADVICE if isinstance(item, tuple) else ""
            problem = f"expected {expected}. Received: {repr(item)[:100]}{advice}"
            raise UserError(problem, at=Input(index))
    warn_about_empty_texts(inputs)


def warn_about_empty_texts(inputs: Sequence[Any]) -> None:
    """Warns about strings and tuples of strings that are blank or have a blank string."""
    tuples = [item or [""] if isinstance(item, list | tuple) else [item] for item in inputs]
    empty = [index for index, texts in enumerate(tuples) if not all(map(_has_content, texts))]
    if empty:
        problem = counted(len(empty), "input", "have an empty text", of=len(inputs))
        warn(problem, at=Input(empty[0]))


def _has_content(text: str) -> bool:
    # `strip` would keep characters of no width.
    return any(char.isprintable() and not char.isspace() for char in text)


class TextCheck:
    """Warns once if texts are garbled, in a wrong column, or do not fit the vocabulary.

    Checks the first `_NUM_CHECKED` inputs together, then a sample of calls with at least as many.
    """

    def __init__(self, tokenizer: FullTokenizer, source: str = "Inputs") -> None:
        self._tokenizer, self._source, self._has_warned = tokenizer, source, False
        self._first: list[list[str]] = []

    def __call__(self, inputs: Sequence[Any]) -> None:
        """Checks a list of strings, or of lists or tuples of strings."""
        is_first = len(self._first) < _NUM_CHECKED
        if self._has_warned or not (is_first or len(inputs) >= _NUM_CHECKED):
            return
        sample = inputs if is_first else inputs[:: len(inputs) // _NUM_CHECKED]
        items = (item if isinstance(item, list | tuple) else [item] for item in sample)
        texts = [[text for text in item if isinstance(text, str)] for item in items]
        texts = self._first + texts if is_first else texts
        self._first = texts[:_NUM_CHECKED]
        for problem in find_problems(self._tokenizer, texts):
            self._has_warned = True
            warn(f"{self._source}: {problem}")


class PairCheck:
    """Warns once about text pairs if the model was trained on single texts, and vice versa.

    `trained_on_pairs` says what the model was trained on; None if that is unknown.
    """

    def __init__(self, trained_on_pairs: bool | None) -> None:
        self._warnings: dict[int, str] = {}  # number of texts of an input -> what is wrong
        if trained_on_pairs:
            self._warnings[1] = "have one text, but the model was trained on pairs"
        elif trained_on_pairs is not None:
            self._warnings[2] = "have two texts, but the model was trained on single ones"

    def __call__(self, inputs: Sequence[Any]) -> None:
        """Checks a list of strings and tuples of strings."""
        sizes = Counter(len(item) if isinstance(item, tuple) else 1 for item in inputs)
        for size, count in sizes.items():
            if problem := self._warnings.pop(size, None):
                warn(f"{counted(count, 'input', problem, of=len(inputs))} (logged once)")
