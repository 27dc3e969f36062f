"""Times sentence embeddings, against Hugging Face's BERT on PyTorch.

usage: python benchmarks/sentences.py --model_dir=DIR --texts=FILE [--rounds=5] [--batch_size=32]
           [--precision=bfloat16]

FILE has a text on each line. Both models have the same weights, cast to --precision. They tokenize,
sort by length, form batches, and average the last layer over all tokens, on all cores. The vectors
are compared first. Each model runs in a separate process, and encodes the texts twice before it is
timed, to exclude loading, tracing and compiling. Needs torch, transformers and the extra
`benchmark`. --model_dir contains bert_model.ckpt, bert_config.json and vocab.txt.
"""

import argparse
import functools
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from benchmarks import timing

MAX_SEQ_LENGTH = 128


def make_bert_tf_workload(
    model_dir: Path, lines: list[str], batch_size: int, precision: str, folder: Path
) -> Callable[[], Any]:
    """Returns a function that encodes all lines with bert_tf."""
    from bert_tf.quiet import import_tensorflow

    import_tensorflow()
    from bert_tf.data.texts import Text
    from bert_tf.options import ExtractionOptions
    from bert_tf.tasks.feature_extraction.extraction import Extractor

    extractor = Extractor(
        ExtractionOptions(
            bert_config_file=str(model_dir / "bert_config.json"),
            vocab_file=str(model_dir / "vocab.txt"),
            init_checkpoint=str(model_dir / "bert_model.ckpt"),
            layers="-1",
            pooling="mean",
            max_seq_length=MAX_SEQ_LENGTH,
            batch_size=batch_size,
            precision=precision,
        ),
        total=len(lines),
    )
    texts = [Text(line) for line in lines]
    vectors = [features.values[0] for features in extractor.features(texts)]
    np.save(folder / "ours.npy", np.stack(vectors))
    return functools.partial(extractor.features, texts)


def make_torch_encoder(
    model_dir: Path, folder: Path, batch_size: int, precision: str = "float32"
) -> Callable[[list[str]], np.ndarray]:
    """Returns a function from lines to vectors, with Hugging Face's model and our weights."""
    import torch
    from tokenizers import BertWordPieceTokenizer

    from benchmarks.squad_torch import build_model

    dtype = getattr(torch, precision)
    model = build_model(folder).bert.eval().to(dtype)
    tokenizer = BertWordPieceTokenizer(str(model_dir / "vocab.txt"))
    tokenizer.enable_truncation(MAX_SEQ_LENGTH)

    def encode(lines: list[str]) -> np.ndarray:
        token_ids = [encoding.ids for encoding in tokenizer.encode_batch(lines)]
        order = sorted(range(len(lines)), key=lambda row: -len(token_ids[row]))
        vectors = np.empty((len(lines), model.config.hidden_size), np.float32)
        with torch.inference_mode():
            for first in range(0, len(order), batch_size):
                rows = order[first : first + batch_size]
                length = len(token_ids[rows[0]])
                padded = [token_ids[row] + [0] * (length - len(token_ids[row])) for row in rows]
                ids = torch.tensor(padded)
                lengths = torch.tensor([[len(token_ids[row])] for row in rows])
                mask = (torch.arange(length) < lengths).to(dtype)
                hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
                sums = (hidden.float() * mask.float()[:, :, None]).sum(1)
                vectors[rows] = (sums / lengths).numpy()
        return vectors

    return encode


def make_torch_workload(
    model_dir: Path, lines: list[str], batch_size: int, precision: str, folder: Path
) -> Callable[[], Any]:
    """Returns a function that encodes all lines with Hugging Face's model."""
    encode = functools.partial(make_torch_encoder(model_dir, folder, batch_size, precision), lines)
    np.save(folder / "theirs.npy", encode())
    return encode


def write_weights(model_dir: Path, folder: Path) -> None:
    """Writes the weights and the configuration for `make_torch_encoder`."""
    # Imported here because PyTorch and TensorFlow can conflict in one process.
    from bert_tf import checkpoints

    prefix = str(model_dir / "bert_model.ckpt")
    np.savez(folder / "weights.npz", **dict(checkpoints.read(prefix, checkpoints.shapes(prefix))))
    shutil.copy(model_dir / "bert_config.json", folder / "config.json")


def main() -> None:
    """Compares and times both models; prints and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model_dir", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    args = parser.parse_args()
    lines = args.texts.read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_weights(args.model_dir, folder)
        makers = {
            name: functools.partial(
                make_workload, args.model_dir, lines, args.batch_size, args.precision, folder
            )
            for name, make_workload in (
                ("ours", make_bert_tf_workload),
                ("theirs", make_torch_workload),
            )
        }
        seconds = timing.time_in_processes(makers, args.rounds)
        vectors = [np.load(folder / f"{name}.npy") for name in makers]
    vectors = [values / np.linalg.norm(values, axis=1, keepdims=True) for values in vectors]
    cosine = float((vectors[0] * vectors[1]).sum(1).min())
    # The original's gelu uses tanh; Hugging Face's uses erf.
    min_cosine = 0.9999 if args.precision == "float32" else 0.998
    timing.require(cosine > min_cosine, f"the vectors differ (min cosine {cosine})")
    results = {
        "texts": len(lines),
        "batch_size": args.batch_size,
        "precision": args.precision,
        "min cosine": round(cosine, 6),
        "sentences/s": {
            name: round(len(lines) / statistics.median(times)) for name, times in seconds.items()
        },
        "times faster": round(timing.median_speedup(seconds["theirs"], seconds["ours"]), 2),
    }
    print(results)
    timing.write_results(
        "sentences" if args.precision == "float32" else f"sentences_{args.precision}",
        results,
        *("tensorflow", "torch", "transformers", "tokenizers", "numpy"),
    )


if __name__ == "__main__":
    main()
