"""Networks of transformers that are small enough for tests, saved as their owners save them."""

from pathlib import Path
from typing import Any

_VIT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 32, "patch_size": 8}
_STAGES = {"depths": [1, 1, 1, 1], "hidden_sizes": [4, 8, 8, 16]}
VISION: dict[str, dict[str, Any]] = {
    "convnext": _STAGES,
    "resnet": {**_STAGES, "layer_type": "basic", "embedding_size": 4},
    "vit": {**_VIT, "intermediate_size": 32},
    "beit": {**_VIT, "intermediate_size": 32},
    "dinov2": {**_VIT, "mlp_ratio": 2},
    "swin": {"embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "window_size": 2, "image_size": 32},
    "mobilenet_v2": {"depth_multiplier": 0.1, "min_depth": 8, "finegrained_output": False},
    "segformer": {**_STAGES, "num_attention_heads": [1, 1, 1, 1], "decoder_hidden_size": 8},
}
_BERT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": 50,
    "max_position_embeddings": 14,
}
TEXT: dict[str, dict[str, Any]] = {
    "distilbert": {
        "dim": 16,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 32,
        "vocab_size": 50,
        "max_position_embeddings": 14,
    },
    "bert": _BERT,
    "roberta": {**_BERT, "pad_token_id": 1},
    "mpnet": _BERT,
    "electra": {**_BERT, "embedding_size": 16},
    "albert": {**_BERT, "embedding_size": 16},
}


def save(folder: Path, family: str, shape: dict[str, Any], **more: Any) -> str:
    """Write a network with random weights, and return its folder."""
    from transformers import AutoConfig, AutoModel

    AutoModel.from_config(AutoConfig.for_model(family, **shape, **more)).save_pretrained(folder)
    return str(folder)
