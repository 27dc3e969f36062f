"""Options of `search_texts.py`."""

import dataclasses

from bert_tf.base.errors import UserError
from bert_tf.data.split_files import LayoutOptions
from bert_tf.options.declare import DATA, MODEL, PATH, RESULTS, RUN, check_needs, option
from bert_tf.options.shared import EngineOptions, ModelOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchOptions(ModelOptions, EngineOptions, LayoutOptions, affects=DATA):
    """Options of `search_texts.py`."""

    index_dir: str | None = option(None, "Folder of the index.", affects=RUN | PATH, required=True)
    init_checkpoint: str | None = option(
        None,
        "Encoder of the vectors: the output_dir of run_embeddings.py, the folder of a "
        "sentence-transformers model, or any checkpoint of BERT, whose vectors are means.",
        affects=RUN | PATH,
        required=True,
    )
    input_file: str | None = option(
        None,
        "Texts to index: one per line; with --text_column, a table; or JSON lines in the layout of "
        "BEIR's corpus.jsonl. `-`: standard input. Without it, the index is searched.",
        affects=DATA | PATH,
    )
    text_column: str | None = option(
        None,
        "Column of the texts: name, 1-based number, or path in JSON.",
        needs=("input_file",),
    )
    id_column: str | None = option(
        None, "Column of the ids of the texts. By default, they are numbered from 1."
    )
    query_file: str | None = option(
        None,
        "Queries: one per line, or an id, a tab and the query; or JSON lines in the layout of "
        "BEIR's queries.jsonl. `-`: standard input. By default, each line of the standard input is "
        "a query, answered at once.",
        affects=DATA | PATH,
    )
    output_file: str | None = option(
        None,
        "File for the results, by default printed. .trec or .run: lines for trec_eval; .tsv: query "
        "id, text id, query and text, for run_ranking.py; otherwise JSON lines.",
        affects=RUN | PATH,
    )
    top_k: int = option(
        10, "Number of texts to find for each query.", affects=RESULTS, limits=(1, 100_000)
    )
    query_prefix: str = option(
        "auto", "Written before each query. auto: what the model's folder declares.", affects=MODEL
    )
    passage_prefix: str = option(
        "auto", "Written before each text. auto: what the model's folder declares.", affects=MODEL
    )
    rerank_model: str | None = option(
        None,
        "output_dir of a cross-encoder, which scores query and text together: it sorts the first "
        "--rerank_top_k texts anew.",
        affects=RESULTS | PATH,
    )
    rerank_top_k: int = option(
        100,
        "Number of texts per query to rerank, at least --top_k.",
        affects=RESULTS,
        limits=(1, 100_000),
        needs=("rerank_model",),
    )

    def check(self) -> None:
        """Checks the options without reading any files."""
        self.check_required()
        self.check_model()
        self.check_engine()
        self.check_layout("id_column")
        check_needs(self)
        if self.input_file and not self.query_file and (self.output_file or self.rerank_model):
            raise UserError("With --input_file, only the index is built: also pass --query_file")
