"""An encoder for text: a transformer of the transformers library, and a hidden layer on its first token."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from okapi.config import TextSettings
from okapi.hub import first_line
from okapi.models.pretrained import copy_weights, freeze_unused, make_network, read_architecture


class TextEncoder(nn.Module):
    """A transformer; what it says of the first token goes through a layer with GELU, layer normalisation and dropout.

    Parameters
    ----------
    settings : TextSettings
    tokens : int
        Length of a text on which the transformer is tried: one that is too long for it is reported at once.
    """

    def __init__(self, settings: TextSettings | None = None, tokens: int = 8) -> None:
        super().__init__()
        settings = settings or TextSettings()
        if settings.backbone is None and settings.pretrained is None:
            architecture, name = _distilbert(settings), "distilbert"
        else:
            key = "pretrained" if settings.backbone is None else "backbone"
            name = getattr(settings, key)
            architecture = read_architecture(key, name, _otherwise(key))
        self.transformer: nn.Module = make_network("backbone", name, architecture)
        inner = self._try(name, tokens)
        if settings.pretrained is not None:
            copy_weights(self.transformer, settings.pretrained, name, _otherwise("pretrained"))
        self.out_features = settings.out_features
        self.hidden = nn.Sequential(
            nn.Linear(inner, self.out_features),
            nn.GELU(),
            nn.LayerNorm(self.out_features),
            nn.Dropout(settings.dropout),
        )

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
    return TextEncoder(settings, len(sample["input_ids"]))


def _distilbert(settings: TextSettings) -> Any:
    from transformers import DistilBertConfig

    if settings.width % settings.heads:
        raise ValueError(f"width must be a multiple of heads, got {settings.width} and {settings.heads}")
    return DistilBertConfig(
        n_layers=settings.layers,
        dim=settings.width,
        n_heads=settings.heads,
        hidden_dim=settings.feed_forward,
        vocab_size=settings.vocabulary,
        max_position_embeddings=settings.longest,
    )


def _otherwise(key: str) -> str:
    return f"; or set {key}: null, for a DistilBERT with random weights"
