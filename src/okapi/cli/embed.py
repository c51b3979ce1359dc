"""``okapi embed``."""

from pathlib import Path

from jsonargparse import ArgumentParser, Namespace

from okapi.cli.parsing import Parser, Verb, whole


def _embed(chosen: Namespace) -> None:
    from okapi import training

    config, weights = training.open_model(chosen.config, chosen.overrides, chosen.data, chosen.weights)
    done = training.embed(
        config,
        chosen.out,
        weights=weights,
        splits=chosen.split,
        normalise=chosen.normalise,
        batch_size=chosen.batch_size,
        workers=chosen.workers,
        device=chosen.device,
        restart=chosen.restart,
    )
    print(f"{done.path}: {done.samples:,} encodings of {done.width:,} numbers in {done.seconds:,.0f} s")
    print(done.next_steps)


def _embed_parser() -> ArgumentParser:
    parser = Parser(
        usage="okapi embed CONFIG [DATA] --out FILE [options]",
        description="Write the encodings of a data set, with ids, domains, splits and targets, for matching and for\n"
        "quick experiments on frozen features. Nothing is scored; targets of test splits are written too.\n"
        "Killed, it goes on by the same command and ends in the same bytes. Any key of the config can be an\n"
        "option too.",
        epilog="example:\n"
        "  okapi embed runs/okapi --out features.parquet\n"
        "  okapi embed configs/pacs/erm.yaml ~/pacs --out features.parquet --model.backbone efficientnet-lite0 \\\n"
        "      --model.pretrained imagenet --data.size 128\n"
        "  okapi match features.parquet --domain domain --id id --target target --columns encoding\n\n"
        "columns: id, domain, split, target, encoding (a list); an npz has x, y, domain, split and id, a csv\n"
        "encoding_0, encoding_1 and so on.",
    )
    add = parser.add_argument
    add("config", type=Path, metavar="CONFIG", help="a run directory, whose selected weights are used, or a YAML file")
    add("data", type=Path, nargs="?", metavar="DATA", help="file or folder of the data (default: the config's)")
    add("--out", type=Path, required=True, metavar="FILE", help="what to write: .parquet, .npz or .csv")
    add("--weights", type=Path, metavar="FILE", help="weights of the network: a model.safetensors")
    add("--split", nargs="+", default=[], metavar="SPLIT", help="only samples of these splits")
    add("--normalise", action="store_true", help="bring encodings to unit length")
    add("--batch-size", type=whole, default=64, metavar="N", help="samples at a time")
    add("--workers", type=whole, metavar="N", help="processes that load samples (default: training.workers)")
    add("--device", default="auto", metavar="NAME", help="cpu, cuda, cuda:1, mps")
    add("--restart", action="store_true", help="begin anew, over whatever is there")
    add("--SECTION.KEY", dest="key", metavar="VALUE", help="a key of the config, as YAML: --data.size 128")
    return parser


VERB = Verb(
    name="embed", help="write the encodings of a data set to a file", parser=_embed_parser, run=_embed, takes_keys=True
)
