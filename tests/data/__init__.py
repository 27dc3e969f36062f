"""Shared helpers for the data tests."""

# Names of the golden conversions: task, split, vocabulary and max_seq_length.
CONVERSIONS = [
    *(f"cola_{split}_uncased_s32" for split in ("train", "dev", "test")),
    *(f"mrpc_{split}_uncased_s64" for split in ("train", "dev", "test")),
    *(f"mrpc_{split}_small_s24" for split in ("train", "dev", "test")),
    *(f"mnli_{split}_cased_s48" for split in ("train", "dev", "test")),
    *(f"xnli_{split}_chinese_s40" for split in ("train", "dev")),
]


class Words:
    """A whitespace tokenizer whose ids are 1 for [CLS], 2 for [SEP], and 10 + length for words."""

    def tokenize(self, text: str) -> list[str]:
        return text.split()

    def convert_tokens_to_ids(self, tokens: list[str]) -> list[int]:
        return [{"[CLS]": 1, "[SEP]": 2}.get(token, 10 + len(token)) for token in tokens]
