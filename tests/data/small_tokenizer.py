"""A tokeniser of a few words, written as transformers writes them."""

from pathlib import Path

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "okapi", "is", "shy", "not", "##ness", "!")


def save_tokenizer(folder: Path, pad: bool = True) -> str:
    """Write a tokeniser that knows ``WORDS`` and return its folder."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    number = {word: row for row, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordPiece(number, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", number["[SEP]"]), ("[CLS]", number["[CLS]"]))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]" if pad else None,
    ).save_pretrained(folder)
    return str(folder)
