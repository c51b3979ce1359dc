"""Any text encoder of transformers, by folder; what names of the hub do is in tests/test_hub.py."""

from pathlib import Path

import pytest
import torch
from tests.models.tiny import TEXT, save
from transformers import AutoModel

from okapi.config import TextSettings
from okapi.models import TextEncoder, untrained
from okapi.models.text_encoder import text_encoder

TOKENS = {"input_ids": torch.randint(5, 50, (3, 7)), "attention_mask": torch.ones(3, 7, dtype=torch.int64)}


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("text")
    return {family: save(folder / family, family, shape) for family, shape in TEXT.items()}


@pytest.mark.parametrize("family", TEXT)
def test_any_encoder_encodes_by_its_first_token_and_learns(family, folders):
    encoder = TextEncoder(TextSettings(pretrained=folders[family], out_features=8))
    encoding = encoder(TOKENS)
    assert encoding.shape == (3, 8)
    encoding.square().sum().backward()
    assert [name for name, p in encoder.named_parameters() if p.requires_grad and p.grad is None] == []
    theirs = AutoModel.from_pretrained(folders[family]).eval()
    with torch.no_grad():
        first = theirs(**TOKENS).last_hidden_state[:, 0]
        torch.testing.assert_close(encoder.eval()(TOKENS), encoder.hidden(first))


def test_a_backbone_says_the_architecture_only(folders):
    random = TextEncoder(TextSettings(backbone=folders["bert"], out_features=8))
    read = TextEncoder(TextSettings(backbone=folders["bert"], pretrained=folders["bert"], out_features=8))
    word = "embeddings.word_embeddings.weight"
    assert random.transformer.state_dict()[word].shape == read.transformer.state_dict()[word].shape
    assert not torch.equal(random.transformer.state_dict()[word], read.transformer.state_dict()[word])
    assert untrained(TextSettings(pretrained="a/b")) == TextSettings(backbone="a/b")


def test_what_cannot_encode_a_text_is_refused(folders, tmp_path: Path):
    tokens = {name: torch.ones(15, dtype=torch.int64) for name in TOKENS}
    with pytest.raises(ValueError, match=r"backbone '.*bert' cannot encode texts of 15 tokens"):
        text_encoder(TextSettings(backbone=folders["bert"]), tokens)
    with pytest.raises(ValueError, match="backbone 'distilbert' cannot encode texts of 15 tokens"):
        text_encoder(TextSettings(layers=1, width=8, heads=1, longest=14), tokens)
    gpt = save(tmp_path / "gpt", "gpt2", {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": 50})
    with pytest.raises(ValueError, match="must be one whose first token sees the whole text"):
        TextEncoder(TextSettings(backbone=gpt))
    with pytest.raises(ValueError, match=r"pretrained must hold a .*bert, .*distilbert holds another network"):
        TextEncoder(TextSettings(backbone=folders["bert"], pretrained=folders["distilbert"]))
