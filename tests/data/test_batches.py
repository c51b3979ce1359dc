from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from torch import Tensor

from okapi.data.arrays import from_arrays
from okapi.data.augment import Affine, Compose, Noise, Transform, Views, can_draw
from okapi.data.batches import Batch, Batches, Samples, batch_loader, evaluation_batches, view_generators
from okapi.data.dataset import Dataset
from okapi.data.sampling import Stream
from okapi.data.sites import sites_dataset
from okapi.data.task import Task

SITES = sites_dataset()
# Python warns of forking while other libraries' threads run; workers of a loader use none of them.
forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def batches(data: Dataset = SITES, rank: int = 0, world: int = 1, **changes) -> Batches:
    labelled = Stream(data.rows("train"), 12, 0, rank, world)
    unlabelled = Stream(data.rows("unlabelled"), 8, 1, rank, world)
    return Batches(data, **{"labelled": labelled, "unlabelled": unlabelled, "seed": 5, "strong": "all"} | changes)


def tensors(batch: Batch | Samples) -> dict[str, Tensor]:
    if isinstance(batch, Batch):
        parts = {"labelled": batch.labelled} | ({"unlabelled": batch.unlabelled} if batch.unlabelled else {})
        return {f"{pool}.{name}": tensor for pool, part in parts.items() for name, tensor in tensors(part).items()}
    found = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def assert_same(one: Batch | Samples, other: Batch | Samples) -> None:
    first, second = tensors(one), tensors(other)
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


# What a batch is


def test_a_batch_has_targets_of_the_labelled_pool_only():
    batch = batches()[3]
    rows = batch.labelled.id
    assert (len(batch.labelled), len(batch.unlabelled)) == (12, 8)
    assert torch.equal(batch.labelled.target, SITES.target[rows])
    assert torch.equal(batch.labelled.domain, SITES.domain[rows])
    assert set(rows.tolist()) <= set(SITES.rows("train").tolist())
    assert set(batch.unlabelled.id.tolist()) <= set(SITES.rows("unlabelled").tolist())
    assert batch.unlabelled.target is None
    assert "unlabelled.target" not in tensors(batch)


def test_views_differ_by_kind_and_step_but_show_the_same_sample():
    batch = batches()[0].labelled
    originals = SITES.inputs[batch.id]
    for view in (batch.inputs, batch.strong):
        assert view.shape == originals.shape
        assert all(not torch.equal(a, b) for a, b in zip(view, originals, strict=True))
    assert not torch.equal(batch.inputs, batch.strong)
    alike = torch.nn.functional.cosine_similarity(batch.inputs.flatten(1), originals.flatten(1))
    assert alike.mean() > 0.8
    one = replace(SITES, split=np.where(np.arange(len(SITES)) == 7, "train", "id_val"))
    steps = Batches(one, labelled=Stream(one.rows("train"), 1, 0), seed=0)
    assert len({tuple(steps[step].labelled.inputs.flatten().tolist()) for step in range(5)}) == 5


@pytest.mark.parametrize(("strong", "labelled", "unlabelled"), [("none", 0, 0), ("unlabelled", 0, 1), ("all", 1, 1)])
def test_strong_views_are_made_where_they_are_asked_for(strong: str, labelled: int, unlabelled: int):
    batch = batches(strong=strong)[0]
    assert (batch.labelled.strong is not None, batch.unlabelled.strong is not None) == (labelled, unlabelled)
    assert batches(strong=strong, unlabelled=None)[0].unlabelled is None


def test_matches_are_the_rows_that_were_asked_for():
    plain = replace(SITES, views=Views())
    matches = torch.full((len(SITES),), -1)
    matches[SITES.rows("train")[::2]] = SITES.rows("unlabelled")[:1]
    batch = batches(plain, matches=matches, strong="none")[0]
    assert torch.equal(batch.labelled.matched, matches[batch.labelled.id] >= 0)
    assert 0 < batch.labelled.matched.sum() < 12
    assert torch.equal(batch.labelled.match, SITES.inputs[matches[batch.labelled.id][batch.labelled.matched]])
    assert batch.unlabelled.match.shape == (0, 1, 32, 32)
    assert not batch.unlabelled.matched.any()
    distorted = batches(matches=matches)[0]
    assert distorted.labelled.match.shape == batch.labelled.match.shape
    assert not torch.equal(distorted.labelled.match, batch.labelled.match)
    assert distorted.unlabelled.match.shape == (0, 1, 32, 32)


class Paint:
    """A view that says which it was."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, sample: Tensor, rng: np.random.Generator) -> Tensor:
        return torch.full_like(sample, self.value)


def test_a_sample_is_viewed_as_its_own_pool_is_and_so_is_a_match():
    train, unlabelled = SITES.rows("train"), SITES.rows("unlabelled")
    matches = torch.full((len(SITES),), -1)
    matches[train], matches[train[::2]], matches[unlabelled] = unlabelled[0], train[0], train[0]
    painted = replace(SITES, views=Views(labelled=Paint(1), unlabelled=Paint(2), strong=Paint(3)))
    batch = batches(painted, matches=matches)[0]
    for samples, value in ((batch.labelled, 1), (batch.unlabelled, 2)):
        assert samples.inputs.unique().tolist() == [value]
        assert samples.strong.unique().tolist() == [3]
    wanted = torch.where(matches[batch.labelled.id] == train[0], 1.0, 2.0)
    assert set(wanted.tolist()) == {1, 2}
    assert torch.equal(batch.labelled.match, wanted[:, None, None, None].expand_as(batch.labelled.inputs))
    assert batch.unlabelled.match.unique().tolist() == [1]
    half = batches(replace(SITES, views=Views(unlabelled=Paint(2))), matches=matches, strong="none")[0]
    assert torch.equal(half.labelled.inputs, SITES.inputs[half.labelled.id])
    own = wanted == 1
    assert torch.equal(half.labelled.match[own], SITES.inputs[train[:1]].expand_as(half.labelled.match[own]))
    assert half.labelled.match[~own].unique().tolist() == [2]


def test_a_pool_may_be_smaller_than_its_batch():
    few = SITES.rows("unlabelled")[:61]
    batch = batches(unlabelled=Stream(few, 64, 1))[3]
    assert set(batch.unlabelled.id.tolist()) <= set(few.tolist())
    assert len(batch.unlabelled) == 64


def test_mappings_of_tensors_make_batches_too():
    data = Dataset(
        inputs={"input_ids": torch.arange(80).reshape(20, 4), "attention_mask": torch.ones(20, 4)},
        target=torch.zeros(20, dtype=torch.int64),
        domain=torch.zeros(20, dtype=torch.int64),
        split=10 * ["train", "unlabelled"],
        task=Task("classification", 2),
        domain_names=("a",),
    )
    streams = {"labelled": Stream(data.rows("train"), 4, 0), "unlabelled": Stream(data.rows("unlabelled"), 6, 0)}
    batch = Batches(data, **streams, seed=0, matches=torch.arange(20))[0]
    assert torch.equal(batch.labelled.inputs["input_ids"], data.inputs["input_ids"][batch.labelled.id])
    assert batch.unlabelled.match["attention_mask"].shape == (6, 4)


# It is a function of the seed and the step


@forks
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_the_same_from_any_number_of_processes(workers: int):
    matches = torch.randint(-1, len(SITES), (len(SITES),), generator=torch.Generator().manual_seed(0))
    source = batches(matches=matches)
    loaded = list(batch_loader(source, 3, 9, workers=workers))
    assert len(loaded) == 6
    for step, batch in zip(range(3, 9), loaded, strict=True):
        assert_same(batch, source[step])


def test_the_ranks_batches_together_are_the_batch_of_one_process():
    for step in (0, 57):
        whole, (left, right) = batches()[step], (batches(rank=rank, world=2)[step] for rank in (0, 1))
        for name, tensor in tensors(whole).items():
            assert torch.equal(tensor, torch.cat([tensors(left)[name], tensors(right)[name]])), name


def test_seeds_give_other_views_of_the_same_samples():
    one, other = batches(seed=0)[2], batches(seed=1)[2]
    assert torch.equal(one.labelled.id, other.labelled.id)
    assert not torch.equal(one.labelled.inputs, other.labelled.inputs)


def test_every_view_draws_numbers_of_its_own():
    keys = [(s, t, r, k) for s in (0, 1, 2**64 - 1) for t in (0, 1, 10**7) for r in (0, 1, 10**9) for k in range(3)]
    drawn = np.array([next(view_generators(s, t, [r], k)).random(50) for s, t, r, k in keys])
    assert len(np.unique(drawn)) == drawn.size
    correlation = np.corrcoef(drawn)[np.triu_indices(len(keys), 1)]
    assert abs(correlation.mean()) < 0.01
    assert abs(correlation.std() - 50**-0.5) < 0.01


def test_a_generator_is_wound_to_each_row_whatever_was_drawn_before():
    drawn = []
    for generator in view_generators(7, 3, [5, 2, 5], 1):
        drawn.append(generator.random(3).tolist())
        generator.random(dtype=np.float32)  # leaves half of a number behind
    philox = np.random.Philox(key=np.array([7, 1], dtype=np.uint64), counter=np.array([0, 0, 2, 3], dtype=np.uint64))
    assert drawn[0] == drawn[2]
    assert drawn[1] == np.random.Generator(philox).random(3).tolist()


AFFINE = Affine(degrees=30, shear=10, scale=(0.6, 1.5), translate=0.3)


@pytest.mark.parametrize(
    ("transform", "shape"),
    [
        (Noise(0.3), (4,)),
        (Noise(0.3), (1, 3, 3)),
        (AFFINE, (2, 9, 7)),
        (Compose((AFFINE, Noise(0.3), AFFINE)), (2, 9, 7)),
    ],
)
def test_views_drawn_together_are_those_of_samples_one_by_one(transform: Transform, shape: tuple[int, ...]):
    views, samples = Views(labelled=transform), torch.rand(5, *shape)
    data = from_arrays(samples, np.arange(5), domain=np.zeros(5, dtype=int), split=5 * ["train"], views=views)
    batch = Batches(data, labelled=Stream(np.arange(5), 5, 0), seed=3)[1].labelled
    assert can_draw(transform)
    for row, seen in zip(batch.id.tolist(), batch.inputs, strict=True):
        (rng,) = view_generators(3, 1, [row], 0)
        assert torch.equal(seen, transform(samples[row], rng))


@forks
@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_leave_torch_s_generator_alone(workers: int):
    before = torch.get_rng_state()
    list(batch_loader(batches(), 0, 2, workers=workers))
    list(evaluation_batches(SITES, SITES.rows("id_val"), 100, workers=workers))
    assert torch.equal(torch.get_rng_state(), before)


class Threads:
    """Inputs that say how many threads torch has where they are read."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, row: int) -> Tensor:
        return torch.tensor([torch.get_num_threads()])


@forks
def test_workers_have_one_thread_each():
    zeros = torch.zeros(4, dtype=torch.int64)
    parts = {"inputs": Threads(), "target": zeros, "domain": zeros, "split": 4 * ["train"], "domain_names": ("a",)}
    data = Dataset(**parts, task=Task("classification", 2))
    source = Batches(data, labelled=Stream(data.rows("train"), 2, 0), seed=0)
    assert [batch.labelled.inputs.tolist() for batch in batch_loader(source, 0, 2, workers=1)] == 2 * [[[1], [1]]]


# What is refused


def test_batches_that_cannot_be_made():
    for changes, words in [
        ({"strong": "some"}, "strong must be 'none', 'unlabelled' or 'all', got 'some'"),
        ({"matches": torch.zeros(3)}, r"matches must be of shape \(9000,\), got \(3,\)"),
        ({"seed": -1}, "seed must be from 0"),
    ]:
        with pytest.raises(ValueError, match=words):
            batches(**changes)
    with pytest.raises(ValueError, match="no strong view"):
        batches(replace(SITES, views=Views(labelled=Noise(0.1))), strong="unlabelled")


# Evaluation


@forks
@pytest.mark.parametrize("world", [1, 2, 3, 7])
@pytest.mark.parametrize("size", [1, 10, 1000])
def test_every_sample_is_evaluated_once_as_it_is(world: int, size: int):
    few = replace(SITES, split=np.where(np.arange(len(SITES)) % 90 == 0, "id_val", "train"))  # 20 samples
    loaders = [evaluation_batches(few, few.rows("id_val"), size, rank, world) for rank in range(world)]
    shares = [list(loader) for loader in loaders]
    assert [len(loader) for loader in loaders] == [len(share) for share in shares]
    assert all(0 < len(samples) <= size for share in shares for samples in share)
    sizes = [sum(map(len, share)) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    together = [samples for share in shares for samples in share]
    rows = few.rows("id_val")  # in order: who gathers the shares of all ranks need not sort
    assert torch.equal(torch.cat([samples.id for samples in together]), rows)
    assert torch.equal(torch.cat([samples.inputs for samples in together]), few.inputs[rows])
    assert torch.equal(torch.cat([samples.target for samples in together]), few.target[rows])
    assert torch.equal(torch.cat([samples.domain for samples in together]), few.domain[rows])


@forks
def test_evaluation_is_the_same_with_workers_and_again():
    rows = SITES.rows("ood_test")
    loader = evaluation_batches(SITES, rows, 50, workers=2)
    alone, once, again = list(evaluation_batches(SITES, rows, 50)), list(loader), list(loader)
    for a, b, c in zip(alone, once, again, strict=True):
        assert_same(a, b)
        assert_same(a, c)


def test_a_share_may_be_empty_but_all_not():
    one = torch.tensor([7])
    assert [len(list(evaluation_batches(SITES, one, 4, rank, 3))) for rank in range(3)] == [1, 0, 0]
    for rows, size, rank, words in [
        (one[:0], 4, 0, "rows must not be empty"),
        (one, 0, 0, "batch_size must be"),
        (one, 4, 1, "got rank 1 of 1"),
    ]:
        with pytest.raises(ValueError, match=words):
            evaluation_batches(SITES, rows, size, rank)
