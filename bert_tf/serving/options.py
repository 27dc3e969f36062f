"""Options of `serve_model.py`."""

import dataclasses
import os
import re
from typing import Any

from bert_tf.base.errors import UserError
from bert_tf.options.declare import Options, check_required, check_values, option

_NAME = re.compile(r"[\w.-]+", re.ASCII)
_MAX = 2**31 - 1


def _limit(default: int, text: str) -> Any:
    return option(default, text, limits=(1, _MAX))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServingOptions(Options):
    """Options of `serve_model.py`."""

    model_dir: str | None = option(
        None,
        "Folder of a training run (its output_dir), of an export for --engine, or of a published "
        "model. Not needed with --model.",
        required=True,
    )
    model: str | None = option(
        None,
        "Name and folder of a model, as in --model=reviews=output/reviews. Repeat the flag to "
        "serve several. The name of --model_dir is that of its folder.",
        repeated=True,
    )
    script: str | None = option(
        None,
        "Script whose predictions to serve, for folders that do not record theirs, such as "
        "predict_masked. By default, vectors of extract_features.",
    )
    host: str = option(
        "127.0.0.1",
        "Address to listen at. 0.0.0.0: at all of this machine, such as in a container.",
    )
    port: int = option(8501, "Port to listen at. 0: any free one.", limits=(0, 65535))
    engine: str = option(
        "tensorflow",
        "Library that runs the models. onnx, litert: the first start exports each model to its "
        "folder, as the script that trained it does.",
        choices=("tensorflow", "onnx", "litert"),
    )
    precision: str = option(
        "float32",
        "Precision of the computation. int8: with --engine=onnx or litert only.",
        choices=("float32", "tf32", "bfloat16", "float16", "int8"),
    )
    jit_compile: str = option(
        "auto",
        "Compile models with XLA, for all lengths, before they are ready. auto: on TPUs only.",
        choices=("auto", "true", "false"),
    )
    pooling: str = option(
        "auto",
        "Vectors of encoders that run_embeddings.py has not trained. auto: as the folder of a "
        "sentence-transformers model declares, else mean.",
        choices=("auto", "cls", "mean", "max", "mean_max"),
    )
    max_seq_length: int = option(
        0,
        "Maximum input length in word pieces; longer texts are truncated, or read in windows. 0: "
        "as in training, or else the script's default (encoders: 128).",
        limits=(0, _MAX),
    )
    max_batch_tokens: int = _limit(
        4096, "Compute requests that wait at the same time together, up to this many tokens."
    )
    max_delay_ms: float = option(
        0.0,
        "If a model was busy, wait this long for more requests before the next batch. An idle "
        "model never waits.",
        limits=(0, 10_000),
    )
    max_concurrent: int = _limit(512, "Requests in progress; further ones get status 429.")
    max_explanations: int = _limit(8, "Explanations in progress; further ones get status 429.")
    max_connections: int = _limit(1024, "Open connections; beyond, the slowest one is closed.")
    max_body_bytes: int = _limit(2_000_000, "Longest body; longer ones get status 413.")
    max_inputs: int = _limit(2048, "Inputs of a request; more get status 413.")
    max_input_chars: int = _limit(100_000, "Characters of a text; longer ones get status 413.")
    max_reply_bytes: int = _limit(50_000_000, "Longest reply, as estimated; longer: status 413.")
    receive_timeout: float = option(
        30.0, "Seconds in which a client must send a request.", limits=(0.1, 86_400)
    )
    timeout: float = option(
        60.0, "Seconds for a request, from its first byte to the reply.", limits=(0.1, 86_400)
    )
    allowed_hosts: str | None = option(
        None,
        "Name of the server in browsers, if it has another there, such as models.example.com or "
        "*.example.com. Repeat the flag for several.",
        repeated=True,
    )
    api_key_file: str | None = option(
        None,
        "File with keys, one per line. Requests then need one of them, as in `Authorization: "
        "Bearer KEY`; all but the page, the description of the routes, and /health.",
    )

    def check(self) -> None:
        """Checks the options without reading any files."""
        check_required(self, {"model_dir"} if self.model else ())
        check_values(self)
        self.folders()

    def folders(self) -> dict[str, str]:
        """Returns name -> folder of each model; raises a UserError if a name cannot be used."""
        pairs: list[Any] = [
            item.partition("=")[::2] for item in (self.model or "").split(",") if item
        ]
        if self.model_dir:
            path = os.path.abspath(os.path.expanduser(self.model_dir))
            pairs.insert(0, (re.sub(r"[^\w.-]+", "_", os.path.basename(path)) or "model", path))
        for name, folder in pairs:
            if not _NAME.fullmatch(name) or not folder:
                form = "NAME=FOLDER, with letters, digits, `_`, `-` and `.` in the name"
                raise UserError(f"--model must be {form}. Received: {name}={folder}")
            if [x for x, _ in pairs].count(name) > 1:
                raise UserError(f"Two models are called {name}: pass other names with --model")
        return {name: os.path.expanduser(folder) for name, folder in pairs}
