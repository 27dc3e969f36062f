"""Search by meaning: an index of the vectors of texts, and exact search in it."""
