"""Texts: turned into tokens when they are asked for, by a tokeniser of the transformers library."""

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from okapi.config import TokenSettings
from okapi.hub import load


class Texts:
    """Texts of which each is turned into tokens when it is asked for.

    Item ``row`` is a mapping of ``input_ids`` and ``attention_mask``, both int64 of shape (tokens,).

    Parameters
    ----------
    texts : iterable of str, or Arrow array of large_string
    settings : TokenSettings
    """

    def __init__(self, texts: Iterable[str], settings: TokenSettings) -> None:
        # Not a list, of which every worker process would come to own a copy by counting references to its items.
        self._texts = texts if isinstance(texts, pa.LargeStringArray) else pa.array(texts, pa.large_string())
        self.settings = settings
        if settings.tokenizer:
            _ = self._tokenizer  # one that is missing is reported at once

    def __len__(self) -> int:
        return len(self._texts)

    def text(self, row: int) -> str:
        """Return a text as it is."""
        return str(self._texts[row].as_py())

    def __getitem__(self, row: int) -> dict[str, Tensor]:
        tokens = self._tokenizer(
            self.text(row), max_length=self.settings.tokens, padding="max_length", truncation=True, return_tensors="np"
        )
        return {
            name: torch.from_numpy(np.asarray(tokens[name][0], dtype=np.int64))
            for name in ("input_ids", "attention_mask")
        }

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_tokenizer"}

    @cached_property
    def _tokenizer(self) -> Any:
        return load_tokenizer(self.settings.tokenizer)


def load_tokenizer(name: str) -> Any:
    """Return a tokeniser of transformers, from a folder or by its name."""
    from transformers import AutoTokenizer

    def read(local: bool) -> Any:
        return AutoTokenizer.from_pretrained(name, local_files_only=local, trust_remote_code=False)

    tokenizer = load("tokenizer", name, read)
    if tokenizer.pad_token is None:
        raise ValueError(f"tokenizer {name!r} has no token to pad with")
    return tokenizer
