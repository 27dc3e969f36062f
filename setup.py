"""Packaging of bert_tf; a comment explains each dependency."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+?)"', (HERE / "bert_tf/__init__.py").read_text())[1]

# tensorflow-text has wheels for Linux and for Macs with Apple silicon, but not for Windows.
HAS_TEXT_WHEEL = (
    "platform_system == 'Linux' or (platform_system == 'Darwin' and platform_machine == 'arm64')"
)

NER = ["seqeval>=1.2.2"]  # metrics of run_ner.py, as in the CoNLL shared tasks

ONNX = [
    "onnx>=1.17",  # writes the graphs for export_model.py --format=onnx
    "onnxruntime>=1.20",  # quantizes and runs them
]

LITERT = [
    # Runs the models that export_model.py --format=litert writes; no wheels for Intel Macs.
    "ai-edge-litert>=2; platform_system != 'Darwin' or platform_machine == 'arm64'",
]

SERVE = [
    # The framework of serve_model.py: it checks requests with pydantic, and describes the routes
    # as OpenAPI from the same declarations.
    "fastapi>=0.115",
    "uvicorn>=0.30",  # the server; with httptools and uvloop installed, it is faster
    "prometheus-client>=0.20",  # /metrics
]

DOCS = [
    "mkdocs>=1.6,<2",  # the documentation site
    "mkdocstrings[python]>=1",  # the API reference, from docstrings
]

TEST = [
    "pytest>=8",  # the test runner
    "pytest-xdist>=3.6",  # runs tests in parallel
    "hypothesis>=6",  # property-based tests
    "ruff>=0.17,<0.18",  # linter and formatter; a test runs both
    "nbclient>=0.10",  # runs the notebooks in examples/
    "ipykernel>=6",  # kernel of the notebooks
    "tokenizers>=0.20",  # checks the ids of an exported tokenizer.json
    "pandas>=2",  # Series and DataFrames as inputs
    "polars>=1",  # the same
    *DOCS,
    *NER,
    *ONNX,
    *LITERT,
    *SERVE,
    "httpx>=0.27",  # calls the server in its tests
    "playwright>=1.40",  # shows the server's page in the system's browser, for tests and a picture
]

setup(
    name="bert_tf",
    version=VERSION,
    description="The 2018 BERT release as it would be written today, on TensorFlow and Keras 3",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="The bert_tf authors",
    license="Apache-2.0",
    packages=find_packages(include=["bert_tf", "bert_tf.*"]),
    # Makes pip install -e add this folder to the path, so that bert_tf is also found by programs
    # next to it, which would otherwise import the folder itself as a namespace package.
    package_dir={"": "."},
    package_data={"bert_tf": ["py.typed", "*.pyi", "serving/*.html"]},
    python_requires=">=3.11,<3.14",
    install_requires=[
        "tensorflow>=2.21,<2.22",  # tf.data, tf.distribute, checkpoints and the training loop
        "keras>=3.15,<4",  # the model
        f"tensorflow-text>=2.21,<2.22; {HAS_TEXT_WHEEL}",  # the compiled tokenizer
        "absl-py>=2",  # flags, parsed as in the original
        "numpy>=1.26",  # records, metrics, checkpoint arrays
        "safetensors>=0.4.3",  # reads Hugging Face's weights without executing code
        "tqdm>=4.66",  # the progress bar
        "scikit-learn>=1.4",  # evaluation metrics
        "scipy>=1.11",  # correlations
        "matplotlib>=3.8",  # plots of training and evaluation
    ],
    extras_require={
        "test": TEST,
        "dev": [*TEST, "pyright>=1.1.390"],  # pyright: the type checker
        "docs": DOCS,
        "ner": NER,
        "onnx": ONNX,
        "litert": LITERT,
        "serve": SERVE,
        "benchmark": ["tokenizers>=0.20"],  # the tokenizer that ours is compared with
        "beam": ["apache-beam>=2.60"],  # data creation and feature extraction on a cluster
        "gpu": ["tensorflow[and-cuda]>=2.21,<2.22"],  # CUDA libraries for NVIDIA GPUs
    },
    entry_points={
        "console_scripts": [
            "bert-run-classifier = bert_tf.scripts:run_classifier",
            "bert-run-classifier-with-tfhub = bert_tf.scripts:run_classifier_with_tfhub",
            "bert-convert-checkpoint = bert_tf.scripts:convert_checkpoint",
            "bert-create-pretraining-data = bert_tf.scripts:create_pretraining_data",
            "bert-create-vocab = bert_tf.scripts:create_vocab",
            "bert-export-model = bert_tf.scripts:export_model",
            "bert-extract-features = bert_tf.scripts:extract_features",
            "bert-predict-masked = bert_tf.scripts:predict_masked",
            "bert-run-embeddings = bert_tf.scripts:run_embeddings",
            "bert-run-ranking = bert_tf.scripts:run_ranking",
            "bert-run-multiple-choice = bert_tf.scripts:run_multiple_choice",
            "bert-run-ner = bert_tf.scripts:run_ner",
            "bert-run-pretraining = bert_tf.scripts:run_pretraining",
            "bert-run-squad = bert_tf.scripts:run_squad",
            "bert-search-texts = bert_tf.scripts:search_texts",
            "bert-serve-model = bert_tf.scripts:serve_model",
        ]
    },
    classifiers=[
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
    ],
)
