import pickle
from pathlib import Path

import pytest
import torch
from tests.data.small_tokenizer import WORDS, save_tokenizer

from okapi.config import TokenSettings
from okapi.data.text import Texts


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> str:
    return save_tokenizer(tmp_path_factory.mktemp("tokenizer") / "words")


def numbers(*words: str) -> list[int]:
    return [WORDS.index(word) for word in words]


def test_texts_become_tokens_of_one_length(tokenizer):
    texts = Texts(["The okapi is shyness!", "zebra", ""], TokenSettings(tokenizer=tokenizer, tokens=8))
    words = numbers("[CLS]", "the", "okapi", "is", "shy", "##ness", "!", "[SEP]")
    assert len(texts) == 3
    assert texts[0]["input_ids"].tolist() == words
    assert texts[0]["attention_mask"].tolist() == [1] * 8
    assert texts[1]["input_ids"].tolist() == numbers("[CLS]", "[UNK]", "[SEP]") + [0] * 5
    assert texts[1]["attention_mask"].tolist() == [1, 1, 1, 0, 0, 0, 0, 0]
    assert texts[2]["attention_mask"].sum() == 2
    assert {tensor.dtype for tensor in texts[0].values()} == {torch.int64}


def test_a_long_text_is_cut_and_still_ends(tokenizer):
    texts = Texts(["the okapi is not shy !"], TokenSettings(tokenizer=tokenizer, tokens=4))
    assert texts[0]["input_ids"].tolist() == numbers("[CLS]", "the", "okapi", "[SEP]")
    assert texts.text(0) == "the okapi is not shy !"


def test_texts_travel_to_workers(tokenizer):
    texts = Texts(["the okapi", "is shy"], TokenSettings(tokenizer=tokenizer, tokens=5))
    copy = pickle.loads(pickle.dumps(texts))
    assert torch.equal(copy[1]["input_ids"], texts[1]["input_ids"])


def test_a_tokenizer_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match=r"tokenizer '.*' cannot be loaded from that folder: "):
        Texts(["a"], TokenSettings(tokenizer=str(tmp_path)))
    with pytest.raises(ValueError, match=r"tokenizer 'no/such' is no folder and .* switched off \(HF_HUB_OFFLINE\)"):
        Texts(["a"], TokenSettings(tokenizer="no/such"))
    with pytest.raises(ValueError, match=r"tokenizer '.*' has no token to pad with"):
        Texts(["a"], TokenSettings(tokenizer=save_tokenizer(tmp_path / "bare", pad=False)))
    with pytest.raises(ValueError, match="tokens must be a whole number from 1 to 1,000,000,000, got 0"):
        TokenSettings(tokens=0)
