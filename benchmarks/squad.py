"""Questions to rows, and logits to answers: seconds of the package and of the plain way.

usage: python benchmarks/squad.py --vocab_file=FILE --predict_file=dev-v1.1.json [--rounds=3]

All questions of the file, 384 word pieces, stride 128, on all cores. Logits are drawn at random,
and the same for both. Rows are compared, and both JSON files byte by byte, before anything is
timed.
"""

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import plain_squad, timing
from bert_tf.data.parallel import map_in_order
from bert_tf.options import SquadOptions
from bert_tf.tasks.question_answering import decoding
from bert_tf.tasks.question_answering.predictions import NBEST_PREDICTIONS, PREDICTIONS, Predictions
from bert_tf.tasks.question_answering.squad_reader import read_squad_examples
from bert_tf.tasks.question_answering.task import Squad, best_places
from bert_tf.tokenization import FullTokenizer

LENGTHS = {"max_seq_length": 384, "doc_stride": 128, "max_query_length": 64}
N_BEST_SIZE, MAX_ANSWER_LENGTH = 20, 30


class Package:
    """The ways of the package."""

    def __init__(self, vocab_file: str, predict_file: str) -> None:
        self.tokenizer = FullTokenizer(vocab_file)
        options = SquadOptions(predict_file=predict_file, **LENGTHS)
        self.task = Squad(options, None, self.tokenizer)  # type: ignore[arg-type]

    def convert(self) -> list[dict[str, np.ndarray]]:
        """From the file to rows."""
        task = self.task
        questions = task.read_examples("predict")
        self.windows = questions.windows
        parts = task.portions(questions, "predict")
        return list(map_in_order(lambda part: task.to_features(part, "predict"), parts))

    def decode(self, start_logits: np.ndarray, end_logits: np.ndarray) -> tuple[str, str]:
        """From logits to both files."""
        found: dict[str, np.ndarray] = {}
        for name, logits in (("start", start_logits), ("end", end_logits)):
            places = best_places(logits, name, N_BEST_SIZE, logits.shape[1])
            found |= {key: np.asarray(value) for key, value in places.items()}
        options = decoding.AnswerOptions(N_BEST_SIZE, MAX_ANSWER_LENGTH)
        lists = decoding.decode(self.windows, decoding.Best(**found), self.tokenizer, options)
        contents = Predictions(self.windows.examples, lists, 0.0).contents()
        return contents[PREDICTIONS], contents[NBEST_PREDICTIONS]


def main() -> None:
    """Compares, times, prints and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--predict_file", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    package = Package(args.vocab_file, args.predict_file)

    def convert_plainly() -> tuple[list, list]:
        examples = read_squad_examples(args.predict_file, False, False)
        features = plain_squad.convert(examples, package.tokenizer, **LENGTHS)
        return examples, list(features)

    rows = package.convert()
    examples, features = convert_plainly()
    for name in ("input_ids", "input_mask", "segment_ids"):
        ours = np.concatenate([part[name] for part in rows])
        theirs = np.array([getattr(feature, name) for feature in features])
        timing.require(np.array_equal(ours, theirs), f"both make the same {name}")
    random = np.random.default_rng(1)
    logits = random.normal(size=(2, len(features), LENGTHS["max_seq_length"])).astype(np.float32)
    widened = logits.astype(np.float64).tolist()

    def decode_plainly() -> tuple[str, str]:
        return plain_squad.decode(
            examples, features, *widened, N_BEST_SIZE, MAX_ANSWER_LENGTH, do_lower_case=True
        )

    timing.require(package.decode(*logits) == decode_plainly(), "both write the same files")
    works = {
        "convert": package.convert,
        "convert plainly": convert_plainly,
        "decode": lambda: package.decode(*logits),
        "decode plainly": decode_plainly,
    }
    seconds = timing.interleaved(works, args.rounds)
    figures = {
        "questions": len(examples),
        "windows": len(features),
        "seconds": {name: round(statistics.median(s), 2) for name, s in seconds.items()},
        "times faster": {
            name: round(timing.ratio(seconds[f"{name} plainly"], seconds[name]), 1)
            for name in ("convert", "decode")
        },
    }
    print(figures)
    timing.write_results("squad", figures, "tensorflow", "tensorflow-text", "numpy")


if __name__ == "__main__":
    main()
