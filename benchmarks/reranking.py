"""Times reranking, in pairs per second, beside the CrossEncoder of sentence-transformers.

usage: python benchmarks/reranking.py --model_dir=DIR --peer_dir=DIR --squad_file=FILE
           [--peer_python=python] [--queries=40] [--top_k=20] [--rounds=7]
           [--gpu] [--precision=float32] [--jit_compile=auto]

DIR is an output folder of run_ranking.py, and the same model for sentence-transformers
(`convert_checkpoint.py --to=sentence_transformers`). Both score questions of SQuAD with paragraphs,
the own one and random ones, from Python, in batches of 32, in turn, each in its own process, on the
same single core: see embeddings.py. The scores must be equal. --peer_python is a Python with
sentence-transformers. The ratios are medians over the rounds. With --gpu, both use the first GPU
and all cores.
"""

import argparse
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

BATCH_SIZE = 32


def make_pairs(args: argparse.Namespace) -> list[tuple[str, str]]:
    """Returns `top_k` pairs for each of `queries` questions."""
    articles = json.loads(args.squad_file.read_text(encoding="utf-8"))["data"]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    contexts = [paragraph["context"] for paragraph in paragraphs]
    rng = random.Random(0)
    pairs = []
    for paragraph in rng.sample(paragraphs, args.queries):
        question = rng.choice(paragraph["qas"])["question"]
        candidates = [paragraph["context"], *rng.sample(contexts, args.top_k - 1)]
        pairs += [(question, context) for context in candidates]
    return pairs


def load_ours(args: argparse.Namespace) -> Callable[[list], list[float]]:
    """Returns the function that scores pairs with bert_tf."""
    from bert_tf import Predictor

    settings = {"precision": args.precision, "jit_compile": args.jit_compile}
    predictor = Predictor(args.model_dir, predict_batch_size=BATCH_SIZE, **settings)
    return lambda pairs: [float(prediction.score) for prediction in predictor(pairs)]


def load_theirs(args: argparse.Namespace) -> Callable[[list], list[float]]:
    """Returns the function that scores pairs with sentence-transformers."""
    import torch
    from sentence_transformers import CrossEncoder

    model = CrossEncoder(
        str(args.peer_dir),
        device="cuda" if args.gpu else "cpu",
        model_kwargs={"dtype": getattr(torch, args.precision)},
    )
    settings: Any = {"batch_size": BATCH_SIZE, "activation_fn": torch.nn.Identity()}
    return lambda pairs: [float(score) for score in model.predict(pairs, **settings)]


LOADERS = {"bert_tf": load_ours, "sentence-transformers": load_theirs}


def serve(args: argparse.Namespace) -> None:
    """Scores all pairs for each line of the standard input; prints seconds and scores."""
    score, pairs = LOADERS[args.serve](args), make_pairs(args)
    for _ in sys.stdin:
        begin = time.perf_counter(), time.process_time()
        scores = score(pairs)
        seconds = [time.perf_counter() - begin[0], time.process_time() - begin[1]]
        print(json.dumps([*seconds, scores]), flush=True)


def main() -> None:
    """Times both programs; prints and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("model_dir", "peer_dir", "squad_file"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name, default in (("queries", 40), ("top_k", 20), ("rounds", 7)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--peer_python", default=sys.executable)
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--jit_compile", default="auto")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--serve", choices=LOADERS)
    args = parser.parse_args()
    if args.serve:
        serve(args)
        return
    from benchmarks import timing

    if not args.gpu:
        timing.use_one_core()
    pythons = {"bert_tf": sys.executable, "sentence-transformers": args.peer_python}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = {
        name: subprocess.Popen([python, __file__, *sys.argv[1:], f"--serve={name}"], **pipes)
        for name, python in pythons.items()
    }

    def measure(process: Any) -> list[Any]:
        process.stdin.write("\n")
        process.stdin.flush()
        return json.loads(process.stdout.readline())

    scores = [measure(process)[2] for process in processes.values()]  # a warm-up
    difference = max(abs(a - b) for a, b in zip(*scores, strict=True))
    tolerance = 0.1 if args.precision == "bfloat16" else 0.01
    timing.require(difference < tolerance, f"The scores differ by {difference}")
    rounds = [[measure(process) for process in processes.values()] for _ in range(args.rounds)]
    for process in processes.values():
        process.communicate()
    pairs = args.queries * args.top_k
    results: dict[str, Any] = {"pairs": pairs, "precision": args.precision}
    results["largest difference of scores"] = difference
    for index, kind in enumerate(("wall-clock", "processor")):
        ours, theirs = ([x[i][index] for x in rounds] for i in (0, 1))
        results[kind] = {
            "pairs/s": {
                name: round(pairs / sorted(seconds)[len(seconds) // 2], 2)
                for name, seconds in zip(processes, (ours, theirs), strict=True)
            },
            "times faster": round(timing.median_ratio(theirs, ours), 2),
        }
    print(results)
    timing.write_results("reranking_speed", results, "tensorflow", "keras")


if __name__ == "__main__":
    main()
