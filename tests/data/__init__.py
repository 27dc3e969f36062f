"""Shared helpers for the data tests."""

# Golden conversions, named by task, split, vocabulary and max_seq_length.
CONVERSIONS = [
    *(f"cola_{split}_uncased_s32" for split in ("train", "dev", "test")),
    *(f"mrpc_{split}_uncased_s64" for split in ("train", "dev", "test")),
    *(f"mrpc_{split}_small_s24" for split in ("train", "dev", "test")),
    *(f"mnli_{split}_cased_s48" for split in ("train", "dev", "test")),
    *(f"xnli_{split}_chinese_s40" for split in ("train", "dev")),
]


class Words:
    """A word tokenizer for tests: special tokens get ids 1 and 2, other words their length."""

    def tokenize(self, text: str) -> list[str]:
        return text.split()

    def convert_tokens_to_ids(self, tokens: list[str]) -> list[int]:
        return [{"[CLS]": 1, "[SEP]": 2}.get(token, 10 + len(token)) for token in tokens]
