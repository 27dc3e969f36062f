"""Times the training of encoders, in pairs of texts per second, beside sentence-transformers.

usage: python benchmarks/embeddings.py --name=NAME --model_dir=DIR --data_dir=DIR --work_dir=DIR \
         [--steps=10] [--rounds=5] [--gpu] [--precision=float32] [--jit_compile=auto] \
         [other flags of embeddings_peer.py]

Both programs train on the same rows with the same model, loss and batch size, for --steps steps at
a time, in turn, each in its own process. bert_tf reads its records; sentence-transformers tokenizes
the texts of each batch with its data collator. A warm-up is not counted. Both use the same single
core: PyTorch's threads wait for each other actively, so that other work on the machine would slow
them down many times. The ratios are medians over the rounds, of wall-clock time and of processor
time, which depends less on other work. With --gpu, both use the first GPU and all cores.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import embeddings_peer, timing

FOLDER = Path(__file__).resolve().parent


def serve(settings: dict[str, Any], args: argparse.Namespace) -> None:
    """Trains with bert_tf for each line of the standard input; prints seconds."""
    from bert_tf.base.quiet import import_tensorflow

    os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] = "true"  # leaves memory to the other process
    import_tensorflow()
    import tensorflow as tf

    from bert_tf import checkpoints, training
    from bert_tf.data import records
    from bert_tf.finetuning.model_files import read_model_files
    from bert_tf.options import EmbeddingsOptions
    from bert_tf.tasks.embeddings.task import Embeddings

    folder, num_steps = os.path.dirname(settings["train_file"]), 10_000
    columns = {"anchor_column": "a", "positive_column": "b"}
    columns |= {"score_column": "s"} if settings["loss"] == "cosent" else {}
    options = EmbeddingsOptions(
        **columns,
        data_dir=folder,
        init_checkpoint=str(args.model_dir),
        loss=settings["loss"],
        max_seq_length=args.max_seq_length,
        train_batch_size=settings["batch_size"],
        learning_rate=settings["learning_rate"],
        precision=args.precision,
        jit_compile=args.jit_compile,
    )
    task = Embeddings(*read_model_files(options))
    matches, features = task.read("train"), task.features("train")
    path = os.path.join(folder, "speed.tf_record")
    rows = task.featurize(matches, "train")
    records.write_records(path, features, [{f.name: rows[f.name] for f in features}])
    masks = np.reshape(rows["input_mask"], (len(matches), -1, args.max_seq_length))
    lengths = masks.sum(axis=-1).max(axis=-1)
    devices = training.for_training(
        training.open_devices(options),
        options,
        num_steps,
        training.Lengths(args.max_seq_length, np.bincount(lengths).tolist()),
        texts_per_row=2,
    )
    model = training.build_model(task.build_model, devices)
    checkpoints.load_weights(model, str(args.model_dir / "bert_model.ckpt"))
    state = training.create_train_state(model, options, devices, num_steps, num_steps // 10)
    data = training.training_batches(
        path, features, options, devices, num_records=len(matches), skip_batches=0
    )
    names = tuple(feature.name for feature in features if not feature.per_token)
    loss = training.mean_loss(lambda outputs, batch: task.loss(outputs, batch, True), names)
    step = training.make_train_step(state, loss, options, devices, element_spec=data.element_spec)
    batches = iter(data)
    for _ in sys.stdin:
        begin = time.perf_counter(), time.process_time()
        for batch in itertools.islice(batches, settings["steps"]):
            metrics = step(batch, tf.constant(0))
        float(metrics["loss"])  # waits for the last step
        print(time.perf_counter() - begin[0], time.process_time() - begin[1], flush=True)


def measure(process: Any) -> tuple[float, float]:
    """Lets a process train; returns seconds, and seconds of the processor."""
    process.stdin.write("\n")
    process.stdin.flush()
    wall, cpu = map(float, process.stdout.readline().split())
    return wall, cpu


def main() -> None:
    """Times both programs; prints and writes the results."""
    parser = embeddings_peer.make_parser(__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--precision", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--jit_compile", default="auto")
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--serve", action="store_true")
    args = parser.parse_args()
    if args.serve:
        settings = json.loads((args.work_dir / "settings.json").read_text())
        serve(settings, args)
        return
    args.work_dir.mkdir(parents=True, exist_ok=True)
    embeddings_peer.prepare(args)
    path, _ = embeddings_peer.write_settings(args, args.steps)
    if not args.gpu:
        timing.use_one_core()
    commands = {
        "bert_tf": [sys.executable, __file__, *sys.argv[1:], "--serve"],
        "sentence-transformers": [
            args.peer_python,
            str(FOLDER / "embeddings_torch.py"),
            path,
            "--serve",
            *(["--gpu"] if args.gpu else []),
            *(["--bf16"] if args.precision == "bfloat16" else []),
        ],
    }
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = {name: subprocess.Popen(command, **pipes) for name, command in commands.items()}
    for process in processes.values():
        measure(process)
    rounds = [{n: measure(process) for n, process in processes.items()} for _ in range(args.rounds)]
    for process in processes.values():
        process.communicate()
    results: dict[str, Any] = {
        **{"loss": args.loss, "batch_size": args.batch_size, "steps": args.steps},
        **{"max_seq_length": args.max_seq_length, "precision": args.precision},
    }
    for index, kind in enumerate(("wall-clock", "processor")):
        ours, theirs = ([x[name][index] for x in rounds] for name in processes)
        pairs = args.batch_size * args.steps
        results[kind] = {
            "pairs/s": {
                name: round(pairs / statistics.median(seconds), 2)
                for name, seconds in zip(processes, (ours, theirs), strict=True)
            },
            "times faster": round(timing.median_ratio(theirs, ours), 2),
        }
    print(results)
    timing.write_results(f"embeddings_speed_{args.name}", results, "tensorflow", "keras")


if __name__ == "__main__":
    main()
