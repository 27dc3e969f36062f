"""Rows of gpu.py: what is measured, with which settings and inputs, and the tables of results."""

import fnmatch
import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from benchmarks.tables import format_table

# Name of a size -> layers, hidden size, heads.
SIZES = {"tiny": (2, 128, 2), "base": (12, 768, 12), "large": (24, 1024, 16)}
VOCAB_SIZE = 30522
# The most tokens of an input of `Predictor`.
MAX_SENTENCE_LENGTH = 128
NUM_BATCHES = 16

TORCH = ("torch", "torch-compile")
CONTESTANTS = ("bert_tf", *TORCH, "bert_tf-no-xla", "keras_hub")
# Names a folder in which bert_tf stores compiled programs.
CACHE_VARIABLE = "BERT_TF_XLA_CACHE"
_TUNING_CACHE = "--xla_gpu_per_fusion_autotune_cache_dir={cache}"
_PARALLEL = "--xla_gpu_enable_llvm_module_compilation_parallelism=true"
_CORES = "--xla_gpu_force_compilation_parallelism=16"
# Kind of a row -> contestant -> environment variables. {cache} stands for the folder of a `first`
# row, which is empty at first.
VARIABLES: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "losses": {"bert_tf": {}, "bert_tf-cpu": {"CUDA_VISIBLE_DEVICES": ""}},
    "first": {
        "bert_tf": {},
        "bert_tf-no-triton": {"XLA_FLAGS": "--xla_gpu_enable_triton_gemm=false"},
        "bert_tf-tuning-cache": {"XLA_FLAGS": _TUNING_CACHE, CACHE_VARIABLE: ""},
        "bert_tf-parallel": {
            "XLA_FLAGS": f"{_TUNING_CACHE} {_PARALLEL} {_CORES}",
            CACHE_VARIABLE: "",
        },
    },
}

# Row -> lower bound of the ratio of our throughput to the better of PyTorch's. For `sentence`,
# upper bound of the ratio of times; for `loop`, lower bound of the ratio to the bare step. The most
# important rows come first.
BARS = {
    "train-base-32x128-bfloat16": 2.0,
    "infer-base-32x128-bfloat16": 1.5,
    "train-base-32x128-tf32": 1.5,
    "train-base-32x128-float32": 1.0,
    "loop-base-32x128-bfloat16": 0.95,
    "train-base-128x128-bfloat16": 1.0,
    "train-base-32xmrpc-bfloat16": 1.5,
    "sentence-base-16-float32": 1.0,
    "train-large-32x128-bfloat16": 1.2,
}
MEMORY_BAR, LOSS_BAR = 1.0, 1e-5
LOOP_BAR = BARS["loop-base-32x128-bfloat16"]


class Row(NamedTuple):
    """What is measured; the name of a row is like train-base-32x128-bfloat16.

    Kinds: `train` and `infer` are bare steps; `recompute` is `train` with recomputed layers, and
    `first` is about the first step of `train`; `loop` is training with run_classifier.py;
    `sentence` is the classification of one text; `losses` compares losses with and without XLA.
    If `is_like_mrpc`, the lengths of texts are distributed as in MRPC; otherwise each text has
    `length` tokens.
    """

    kind: str
    size: str
    batch_size: int
    length: int
    precision: str
    is_like_mrpc: bool = False

    @classmethod
    def parse(cls, name: str, size: str | None = None) -> "Row":
        """Returns the row of this name; `size` replaces its size, and `tiny` also shrinks batches.

        Raises:
            ValueError: the name is invalid.
        """
        kind, named_size, shape, precision = name.split("-")
        batch_size, _, length = shape.rpartition("x")
        is_like_mrpc = length == "mrpc"
        tokens = 128 if is_like_mrpc else int(length)
        row = cls(kind, size or named_size, int(batch_size or 1), tokens, precision, is_like_mrpc)
        if size != "tiny":
            return row
        return row._replace(batch_size=min(row.batch_size, 4), length=min(tokens, 32))

    @property
    def config(self) -> dict[str, Any]:
        """Arguments of `BertConfig`, the same for bert_tf and transformers."""
        layers, hidden_size, heads = SIZES[self.size]
        return {
            "vocab_size": VOCAB_SIZE,
            "hidden_size": hidden_size,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "intermediate_size": 4 * hidden_size,
            "max_position_embeddings": 512,
        }

    @property
    def is_training(self) -> bool:
        """Whether steps are training steps."""
        return self.kind not in ("infer", "sentence")

    @property
    def flops(self) -> float:
        """Floating-point operations of a step: matrix products of the encoder, without padding.

        A training step counts as three forward passes.
        """
        layers, hidden_size, _ = SIZES[self.size]
        lengths = self.draw_lengths().astype(float)
        per_layer = 24 * hidden_size**2 * lengths + 4 * hidden_size * lengths**2
        return float((3 if self.is_training else 1) * layers * per_layer.sum() / NUM_BATCHES)

    def draw_lengths(self) -> np.ndarray:
        """Returns the number of tokens of each text, [NUM_BATCHES, batch_size]."""
        shape = (NUM_BATCHES, self.batch_size)
        if not self.is_like_mrpc:
            return np.full(shape, self.length)
        # Texts of MRPC have 53 of 128 tokens on average; the longest has about 104.
        lengths = np.random.default_rng(1).normal(53, 15, shape).clip(20, 104)
        lengths[0, 0] = 104
        return (lengths * self.length / 128).astype(int)

    def make_batches(self, trim: bool) -> list[dict[str, np.ndarray]]:
        """Returns batches with random tokens and labels.

        Texts are padded to a multiple of 8 tokens: if `trim`, to the longest text of the batch, and
        otherwise to the longest of all batches.
        """
        rng = np.random.default_rng(2)
        all_lengths = self.draw_lengths()
        batches = []
        for lengths in all_lengths:
            longest = int((lengths if trim else all_lengths).max())
            padded_length = min(-(-longest // 8) * 8, self.length)
            mask = (np.arange(padded_length) < lengths[:, None]).astype("int32")
            batches.append(
                {
                    "input_ids": rng.integers(1000, VOCAB_SIZE, mask.shape, "int32") * mask,
                    "input_mask": mask,
                    "segment_ids": np.zeros_like(mask),
                    "label_ids": rng.integers(0, 2, self.batch_size, "int32"),
                    "is_real_example": np.ones(self.batch_size, "int32"),
                }
            )
        return batches


class Job(NamedTuple):
    """A row to measure, and the library and settings to measure it with."""

    row: str
    contestant: str


def short_jobs() -> list[Job]:
    """Returns the jobs of the ratios with bars, the most important first."""
    jobs = []
    for row in BARS:
        jobs.append(Job(row, "bert_tf"))
        if not row.startswith("loop"):
            jobs += [Job(row, name) for name in TORCH]
    return jobs


def all_jobs() -> list[Job]:
    """Returns all jobs, those of `short_jobs` first."""
    shapes = [("base", f"{size}x128") for size in (8, 16, 32, 64, 128, 256)]
    shapes += [("base", "32xmrpc"), ("large", "32x128"), ("large", "8x512"), ("large", "32x512")]
    precisions = ("bfloat16", "tf32", "float32", "float16")
    contestants: dict[str, Iterable[str]] = {}
    for (size, shape), precision in itertools.product(shapes, precisions):
        for kind in ("train", "infer"):
            contestants[f"{kind}-{size}-{shape}-{precision}"] = CONTESTANTS
    for size, length, precision in itertools.product(SIZES, (16, 128), ("float32", "bfloat16")):
        if size != "tiny":
            contestants[f"sentence-{size}-{length}-{precision}"] = CONTESTANTS[:4]
    for precision in precisions[:3]:
        contestants[f"loop-base-32x128-{precision}"] = CONTESTANTS[:1]
    contestants["loop-large-32x128-bfloat16"] = CONTESTANTS[:1]
    contestants["losses-base-8x128-float32"] = VARIABLES["losses"]
    contestants["recompute-base-32x128-bfloat16"] = CONTESTANTS[:1]
    contestants["first-base-32x128-bfloat16"] = VARIABLES["first"]
    contestants["first-large-32x128-bfloat16"] = VARIABLES["first"]
    jobs = [Job(row, name) for row, names in contestants.items() for name in names]
    return list(dict.fromkeys([*short_jobs(), *jobs]))


def select(jobs: Iterable[Job], patterns: str) -> list[Job]:
    """Returns the jobs whose "row/contestant" matches one of several glob patterns."""
    return [
        job
        for job in jobs
        if any(fnmatch.fnmatchcase("/".join(job), pattern) for pattern in patterns.split(","))
    ]


Results = Mapping[Job, Mapping[str, Any]]


def summary(results: Results) -> str:
    """Returns tables of the throughput, the ratios and their bars, and other results."""
    names = list(dict.fromkeys(job.row for job in results))
    compared = [name for name in names if Row.parse(name).kind in ("train", "infer", "sentence")]
    header = ("", *CONTESTANTS, "% of peak", "ratio", "memory ratio")
    tables = []
    if compared:
        tables.append(format_table(header, [_compare(results, name) for name in compared]))
    others = [
        ("/".join(job), _describe(results, job))
        for name in names
        for job in results
        if job.row == name and name not in compared
    ]
    if others:
        tables.append(format_table(("", "result"), others))
    return "\n".join(tables)


def _compare(results: Results, name: str) -> list[str]:
    """Returns a line of the table of throughput and ratios."""
    is_sentence = Row.parse(name).kind == "sentence"
    unit = "ms" if is_sentence else "seq/s"
    speeds = []
    for contestant in CONTESTANTS:
        result = results.get(Job(name, contestant), {})
        speed = f"{result[unit]:,} {unit}" if unit in result else result.get("error", "")
        speeds.append(speed.splitlines()[0].split(":")[0] if speed else "")
    ratio = _ratio(results, name, unit, min if is_sentence else max)
    share = results.get(Job(name, "bert_tf"), {}).get("% of peak")
    memory_ratio = _ratio(results, name, "peak GB", min)
    return [
        name,
        *speeds,
        str(share or ""),
        _with_bar(ratio, BARS.get(name), at_most=is_sentence),
        _with_bar(memory_ratio, MEMORY_BAR, at_most=True),
    ]


def _ratio(results: Results, name: str, key: str, best: Callable[..., float]) -> float | None:
    """Returns the ratio of our value to the better of PyTorch's; None if one is unknown."""
    ours = results.get(Job(name, "bert_tf"), {}).get(key)
    values = [results.get(Job(name, contestant), {}).get(key) for contestant in TORCH]
    known = [value for value in values if value]
    return ours / best(known) if ours and known else None


def _with_bar(value: float | None, bar: float | None, at_most: bool = False) -> str:
    """Formats a ratio with its bar, such as "2.31 (bar 2.0)"."""
    if value is None or bar is None:
        return "" if value is None else f"{value:.2f}"
    is_met = value <= bar if at_most else value >= bar
    return f"{value:.3g} (bar {bar}{'' if is_met else ', missed'})"


def _describe(results: Results, job: Job) -> str:
    """Returns the result of a row that is not compared with PyTorch."""
    result, kind = results[job], Row.parse(job.row).kind
    bare = results.get(Job(job.row.replace(kind, "train", 1), job.contestant), {})
    if "error" in result:
        return result["error"].splitlines()[0]
    if kind == "losses":
        difference = _with_bar(result["max relative difference"], LOSS_BAR, at_most=True)
        text = f"largest relative difference of losses: with XLA {difference}"
        cpu = results.get(Job(job.row, "bert_tf-cpu"), {}).get("losses")
        if cpu and job.contestant != "bert_tf-cpu":
            on_device = [result[name] for name in ("losses", "losses with XLA")]
            from_cpu = np.abs(np.subtract(on_device, cpu)) / np.abs(cpu)
            text += f", to the CPU {_with_bar(float(from_cpu.max()), LOSS_BAR, at_most=True)}"
        return text
    if kind == "first":
        cold, warm = result["first step s"], result["in a second process s"]
        return f"first step {cold} s, in a second process {warm} s, {result['seq/s']:,} seq/s"
    text = f"{result['seq/s']:,} seq/s"
    if kind == "recompute":
        return f"{text}, {result['peak GB']} GB; without: {bare.get('peak GB')} GB"
    ratio = _with_bar(result["seq/s"] / bare["seq/s"], LOOP_BAR) if "seq/s" in bare else "unknown"
    return f"{text}, {'with' if result['chose XLA'] else 'without'} XLA; of the bare step: {ratio}"
