"""Times feature conversion and decoding for SQuAD, against the original algorithm.

usage: python benchmarks/squad.py --vocab_file=FILE --predict_file=dev-v1.1.json [--rounds=3]

Converts all questions to rows of 384 word pieces with stride 128, and decodes random logits, on all
cores. The rows and the contents of both JSON files are compared first.
"""

import argparse
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import baseline_squad, timing
from bert_tf.config import BertConfig
from bert_tf.data.parallel import chunks, map_in_order
from bert_tf.options import SquadOptions
from bert_tf.tasks.question_answering.decoding import NBEST_PREDICTIONS, PREDICTIONS
from bert_tf.tasks.question_answering.squad_reader import read_squad_examples
from bert_tf.tasks.question_answering.task import QuestionAnswering
from bert_tf.tokenization import FullTokenizer

LENGTHS = {"max_seq_length": 384, "doc_stride": 128, "max_query_length": 64}
N_BEST_SIZE, MAX_ANSWER_LENGTH = 20, 30
CHUNK_ROWS = 1024


class BertTfPipeline:
    """Converts questions and decodes logits with bert_tf."""

    def __init__(self, vocab_file: str, predict_file: str) -> None:
        self.tokenizer = FullTokenizer(vocab_file)
        options = SquadOptions(
            predict_file=predict_file,
            n_best_size=N_BEST_SIZE,
            max_answer_length=MAX_ANSWER_LENGTH,
            **LENGTHS,
        )
        config = BertConfig(len(self.tokenizer.vocab))
        self.task = QuestionAnswering(options, config, self.tokenizer)

    def convert(self) -> list[dict[str, np.ndarray]]:
        """Converts the file to rows."""
        self.windows = self.task.read("eval")
        parts = chunks(self.windows, CHUNK_ROWS)
        return list(map_in_order(lambda part: self.task.featurize(part, "eval"), parts))

    def decode(self, start_logits: np.ndarray, end_logits: np.ndarray) -> tuple[str, str]:
        """Converts logits to the contents of both prediction files."""
        logits = {"start_logits": start_logits, "end_logits": end_logits}
        outputs = {name: np.asarray(value) for name, value in self.task.fetch(logits, {}).items()}
        contents = self.task.decode(self.windows, outputs).contents()
        return contents[PREDICTIONS], contents[NBEST_PREDICTIONS]


def main() -> None:
    """Compares and times both methods; prints and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocab_file", required=True)
    parser.add_argument("--predict_file", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    pipeline = BertTfPipeline(args.vocab_file, args.predict_file)

    def convert_with_baseline() -> tuple[list, list]:
        examples = read_squad_examples(args.predict_file, False, False)
        features = baseline_squad.convert_examples(examples, pipeline.tokenizer, **LENGTHS)
        return examples, list(features)

    rows = pipeline.convert()
    examples, features = convert_with_baseline()
    for name in ("input_ids", "input_mask", "segment_ids"):
        actual = np.concatenate([part[name] for part in rows])
        expected = np.array([getattr(feature, name) for feature in features])
        timing.require(np.array_equal(actual, expected), f"{name} differ")
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(2, len(features), LENGTHS["max_seq_length"])).astype(np.float32)
    logit_lists = logits.astype(np.float64).tolist()

    def decode_with_baseline() -> tuple[str, str]:
        return baseline_squad.decode_predictions(
            examples, features, *logit_lists, N_BEST_SIZE, MAX_ANSWER_LENGTH, do_lower_case=True
        )

    timing.require(pipeline.decode(*logits) == decode_with_baseline(), "the files differ")
    methods = {
        "convert": pipeline.convert,
        "convert, original": convert_with_baseline,
        "decode": lambda: pipeline.decode(*logits),
        "decode, original": decode_with_baseline,
    }
    seconds = timing.time_interleaved(methods, args.rounds)
    results = {
        "questions": len(examples),
        "windows": len(features),
        "seconds": {name: round(statistics.median(s), 2) for name, s in seconds.items()},
        "times faster": {
            name: round(timing.median_ratio(seconds[f"{name}, original"], seconds[name]), 1)
            for name in ("convert", "decode")
        },
    }
    print(results)
    timing.write_results("squad", results, "tensorflow", "tensorflow-text", "numpy")


if __name__ == "__main__":
    main()
