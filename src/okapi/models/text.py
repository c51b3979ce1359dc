"""An encoder for text: DistilBERT of the transformers library, and a hidden layer on its first token."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from torch import Tensor, nn

from okapi.models.vision import check_folder


class TextEncoder(nn.Module):
    """DistilBERT; what it says of the first token goes through a layer with GELU, layer normalisation and dropout.

    Parameters
    ----------
    layers, width, heads, feed_forward : int
        Of the transformer; by default DistilBERT's.
    vocabulary : int
        How many tokens there are.
    longest : int
        The most tokens that a text may have.
    out_features : int
        Width of the encoding.
    dropout : float
        Share of the encoding that is dropped in training.
    pretrained : path, optional
        A folder that ``save_pretrained`` of transformers wrote; it then says what the transformer is like. By default
        weights are random.
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
        pretrained: str | Path | None = None,
    ) -> None:
        from transformers import DistilBertConfig, DistilBertModel

        super().__init__()
        if width % heads:
            raise ValueError(f"width must be a multiple of heads, got {width} and {heads}")
        if pretrained is not None:
            check_folder(Path(pretrained))
            self.transformer: nn.Module = DistilBertModel.from_pretrained(pretrained, local_files_only=True)
        else:
            config = DistilBertConfig(
                n_layers=layers,
                dim=width,
                n_heads=heads,
                hidden_dim=feed_forward,
                vocab_size=vocabulary,
                max_position_embeddings=longest,
            )
            self.transformer = DistilBertModel(config)
        self.hidden = nn.Sequential(
            nn.Linear(self.transformer.config.dim, out_features),
            nn.GELU(),
            nn.LayerNorm(out_features),
            nn.Dropout(dropout),
        )
        self.out_features = out_features

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return encodings (n, out_features) of ``input_ids`` and ``attention_mask``, both (n, tokens)."""
        hidden: Tensor = self.transformer(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]
        ).last_hidden_state
        encoding: Tensor = self.hidden(hidden[:, 0])
        return encoding


@dataclass(frozen=True, kw_only=True)
class TextSettings:
    """DistilBERT with a hidden layer, for tokens.

    Parameters
    ----------
    layers, width, heads, feed_forward : int
        Of the transformer; by default DistilBERT's. A folder of weights says them itself.
    vocabulary : int
        How many tokens there are.
    longest : int
        The most tokens that a text may have.
    out_features : int
        Width of the encoding.
    dropout : float
        Share of the encoding that is dropped in training.
    pretrained : str, optional
        A folder of weights in the format of transformers; by default weights are random.
    """

    name: ClassVar[str] = "text"
    layers: int = 6
    width: int = 768
    heads: int = 12
    feed_forward: int = 3072
    vocabulary: int = 30522
    longest: int = 512
    out_features: int = 768
    dropout: float = 0.1
    pretrained: str | None = None

    def encoder(self, sample: Tensor | Mapping[str, Tensor]) -> TextEncoder:
        """Return the encoder for tokens such as one sample's, ``input_ids`` and ``attention_mask``."""
        if not isinstance(sample, Mapping) or not {"input_ids", "attention_mask"} <= set(sample):
            raise TypeError("model 'text' takes mappings with input_ids and attention_mask, got other samples")
        return TextEncoder(**asdict(self))
