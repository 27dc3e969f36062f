"""Output formats of fill_mask: JSON lines and tables."""

import json

from bert_tf.tasks.fill_mask.fill_mask import FORMATS, Candidate

TEXT = "A [MASK] é [MASK]."
MASKS = [[Candidate("good", 0.12345678), Candidate("ü", 0.1)], [Candidate("film", 1.0)]]


def test_json_lines():
    line = FORMATS["jsonl"](7, TEXT, MASKS)
    assert line.endswith("}\n")
    assert "ü" in line
    assert json.loads(line) == {
        "line": 7,
        "text": TEXT,
        "masks": [
            [{"word": "good", "probability": 0.123457}, {"word": "ü", "probability": 0.1}],
            [{"word": "film", "probability": 1.0}],
        ],
    }


def test_table():
    assert FORMATS["table"](7, TEXT, MASKS).splitlines() == [
        TEXT,
        "    good  12.3%    film 100.0%",
        "    ü     10.0%",
        "",
    ]


def test_tables_with_many_masks_are_split():
    lines = FORMATS["table"](1, "text", [[Candidate("a", 0.5)]] * 6).splitlines()
    assert [line.count("a  50.0%") for line in lines] == [0, 4, 0, 2, 0]


def test_mask_without_candidates():
    assert FORMATS["table"](1, "text", [[], []]) == "text\n\n"
