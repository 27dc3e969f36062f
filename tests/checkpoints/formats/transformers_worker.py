"""Runs transformers in a separate process, since PyTorch may fail to load next to TensorFlow.

`python transformers_worker.py FOLDER` reads `FOLDER/jobs.json`, and writes `results.json` and the
arrays of each job to FOLDER.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers


def main(folder):
    jobs = json.loads((folder / "jobs.json").read_text())
    results = {name: ACTIONS[job["action"]](folder, name, job) for name, job in jobs.items()}
    (folder / "results.json").write_text(json.dumps(results))


def load(folder, name, job):
    model_class = getattr(transformers, job["architecture"])
    model, info = model_class.from_pretrained(folder / name, output_loading_info=True)
    model.eval()
    with torch.no_grad():
        inputs = {key: torch.tensor(value) for key, value in job["inputs"].items()}
        outputs = {key: value.numpy() for key, value in model(**inputs).items()}
    np.savez(folder / f"{name}.npz", **outputs)
    # Shards of a few kilobytes have the layout of large models.
    model.save_pretrained(folder / f"{name}_saved", max_shard_size="4KB")
    return {key: list(map(str, keys)) for key, keys in info.items() if keys}


def cast(folder, name, job):
    dtype = getattr(torch, job["dtype"])
    model = transformers.BertModel.from_pretrained(folder / job["model"]).to(dtype)
    model.save_pretrained(folder / f"{name}_saved")
    np.save(folder / f"{name}.npy", model.embeddings.word_embeddings.weight.detach().float())


def make_masked_lm(folder, name, job):
    model = transformers.BertForMaskedLM(transformers.BertConfig(**job["config"]))
    model.save_pretrained(folder / name)
    np.savez(folder / f"{name}.npz", **{k: v.numpy() for k, v in model.state_dict().items()})


def tokenize(folder, name, job):
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder / name)
    tokenizer.save_pretrained(folder / f"{name}_saved")
    return [tokenizer.tokenize(job["text"]), tokenizer.model_max_length]


def add_tokens(folder, name, job):
    tokenizer = transformers.BertTokenizer(**job["tokenizer"])
    tokenizer.add_tokens([transformers.AddedToken(**token) for token in job["tokens"]])
    tokenizer.save_pretrained(folder / name)
    return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in job["texts"]]


def read_config(folder, name, job):
    config = transformers.AutoConfig.from_pretrained(folder / name)
    return [config.id2label, config.num_labels, config.classifier_dropout, config.layer_norm_eps]


ACTIONS = {
    function.__name__: function
    for function in (load, cast, make_masked_lm, tokenize, add_tokens, read_config)
}

if __name__ == "__main__":
    main(Path(sys.argv[1]))
