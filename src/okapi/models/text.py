"""An encoder for text: a transformer of the transformers library, and a hidden layer on its first token."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from okapi.config import TextSettings
from okapi.hub import first_line
from okapi.models.pretrained import copy_weights, freeze_unused, make_network, read_architecture

_TRIED = 8  # tokens of a text on which a transformer is tried


class TextEncoder(nn.Module):
    """A transformer; what it says of the first token goes through a layer with GELU, layer normalisation and dropout.

    Parameters
    ----------
    layers, width, heads, feed_forward : int
        Of a DistilBERT, if neither ``backbone`` nor ``pretrained`` says what the transformer is like.
    vocabulary : int
        How many tokens there are; of a DistilBERT.
    longest : int
        The most tokens that a text may have; of a DistilBERT.
    out_features : int
        Width of the encoding.
    dropout : float
        Share of the encoding that is dropped in training.
    backbone : path, optional
        A folder, or a name on the hub, whose ``config.json`` says what the transformer is like, such as BERT, RoBERTa
        or MiniLM: any whose first token sees the whole text.
    pretrained : path, optional
        A folder that ``save_pretrained`` of transformers wrote, or a name on the hub: weights, and, without
        ``backbone``, what the transformer is like. By default weights are random.
    tokens : int
        Length of a text on which the transformer is tried: one that is too long for it is reported at once.
    """

    def __init__(
        self,
        *,
        layers: int = 6,
        width: int = 768,
        heads: int = 12,
        feed_forward: int = 3072,
        vocabulary: int = 30522,
        longest: int = 512,
        out_features: int = 768,
        dropout: float = 0.1,
        backbone: str | Path | None = None,
        pretrained: str | Path | None = None,
        tokens: int = _TRIED,
    ) -> None:
        super().__init__()
        if backbone is None and pretrained is None:
            architecture, name = _distilbert(layers, width, heads, feed_forward, vocabulary, longest), "distilbert"
        else:
            key, name = ("pretrained", str(pretrained)) if backbone is None else ("backbone", str(backbone))
            architecture = read_architecture(key, name, _otherwise(key))
        self.transformer: nn.Module = make_network("backbone", name, architecture)
        inner = self._try(name, tokens)
        if pretrained is not None:
            copy_weights(self.transformer, str(pretrained), name, _otherwise("pretrained"))
        self.hidden = nn.Sequential(
            nn.Linear(inner, out_features), nn.GELU(), nn.LayerNorm(out_features), nn.Dropout(dropout)
        )
        self.out_features = out_features

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return encodings (n, out_features) of ``input_ids`` and ``attention_mask``, both (n, tokens)."""
        encoding: Tensor = self.hidden(self._first_token(inputs["input_ids"], inputs["attention_mask"]))
        return encoding

    def _first_token(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden: Tensor = self.transformer(input_ids=ids, attention_mask=mask).last_hidden_state
        return hidden[:, 0]

    def _try(self, name: str, tokens: int) -> int:
        """Encode two texts that differ in their last token, so that errors come at once; return the width."""
        texts = torch.full((2, max(2, tokens)), 2)
        texts[1, -1] = 3
        self.eval()
        try:
            with torch.enable_grad():
                first = self._first_token(texts, torch.ones_like(texts))
        except Exception as error:  # of networks that want more than tokens, whatever they stumble over first
            raise ValueError(
                f"backbone {name!r} cannot encode texts of {tokens} tokens: {first_line(error)}"
            ) from error
        if torch.equal(first[0], first[1]):
            raise ValueError(f"backbone {name!r} must be one whose first token sees the whole text, such as BERT's")
        freeze_unused(self, first)
        self.train()
        return int(first.shape[1])


def text_encoder(settings: TextSettings, sample: Tensor | Mapping[str, Tensor]) -> TextEncoder:
    """Return the encoder for tokens such as one sample's, ``input_ids`` and ``attention_mask``, both (tokens,)."""
    if not isinstance(sample, Mapping) or not {"input_ids", "attention_mask"} <= set(sample):
        raise TypeError("model 'text' takes mappings with input_ids and attention_mask, got other samples")
    sizes = {key: value for key, value in asdict(settings).items() if key != "name"}
    return TextEncoder(**sizes, tokens=len(sample["input_ids"]))


def _distilbert(layers: int, width: int, heads: int, feed_forward: int, vocabulary: int, longest: int) -> Any:
    from transformers import DistilBertConfig

    if width % heads:
        raise ValueError(f"width must be a multiple of heads, got {width} and {heads}")
    return DistilBertConfig(
        n_layers=layers,
        dim=width,
        n_heads=heads,
        hidden_dim=feed_forward,
        vocab_size=vocabulary,
        max_position_embeddings=longest,
    )


def _otherwise(key: str) -> str:
    return f"; or set {key}: null, for a DistilBERT with random weights"
