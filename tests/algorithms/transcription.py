"""One online training step as the method states it: literal, slow, sharing nothing with the library but brute force."""

import copy

import numpy as np
import torch
from tests.matching.oracle import brute_force


def unit(x):
    return x / x.norm(dim=1, keepdim=True)


def aligned(probability, p_target, p_model):
    """Distribution alignment."""
    scaled = probability * (p_target / p_model)
    return scaled / scaled.sum(1, keepdim=True)


def cluster_sizes(encoding, member):
    """Expectation maximisation, three rounds: a round cluster per class, sharpness 8; nothing is less than 1e-6."""
    for _ in range(3):
        mass = member.sum(0).clamp(min=1e-6)
        sums = [sum(m * z for m, z in zip(of, encoding, strict=True)) for of in member.T]
        centres = [total / m for total, m in zip(sums, mass, strict=True)]
        apart = torch.stack([torch.stack([((z - centre) ** 2).sum() for centre in centres]) for z in encoding])
        width = ((member * apart).sum() / len(member)).clamp(min=1e-6)
        member = torch.softmax(torch.log(mass) - 8 * apart / width, dim=1)
    return member.mean(0)


def class_prior_and_frequencies(outcome, known, encoding, clusters):
    """The prior of unlabelled samples, between labels (0) and clusters (1), and how often each class is predicted."""
    labels = torch.stack([row for row, is_known in zip(outcome, known, strict=True) if is_known]).mean(0)
    guesses = torch.stack([row for row, is_known in zip(outcome, known, strict=True) if not is_known])
    unlabelled = torch.stack([row for row, is_known in zip(encoding, known, strict=True) if not is_known])
    sizes = cluster_sizes(unlabelled, aligned(guesses, labels, guesses.mean(0)))
    return labels ** (1 - clusters) * sizes**clusters, guesses.mean(0)


def from_centres(queries, keys, query_domain, key_domain):
    """Directions from the mean of each domain, of queries and keys together and of ten samples at the overall mean."""
    everything, domain = torch.cat([queries, keys]), torch.cat([query_domain, key_domain])
    rows = []
    for row, d in zip(everything, domain, strict=True):
        of_domain = everything[domain == d]
        rows.append(row - (of_domain.sum(0) + 10 * everything.mean(0)) / (len(of_domain) + 10))
    directions = unit(torch.stack(rows))
    return directions[: len(queries)], directions[len(queries) :]


class Transcription:
    """State and step of Okapi, and of OkapiPlus with joint batches, uncentred, not aligned, without pseudo-labels."""

    def __init__(self, network, scorer, *, settings, steps, domains, multi_label, supervised_loss, learning_rate, kind):
        self.network, self.scorer, self.settings = network, scorer, settings
        self.online_queries = getattr(settings, "queries", "momentum") == "online"
        self.by_pool = getattr(settings, "batch_norm", "joint") == "by_pool"
        self.prognostic_caliper = getattr(settings.matching, "prognostic_caliper", None)
        self.momentum = copy.deepcopy(network.encoder).eval()
        self.momentum_head = copy.deepcopy(network.head)
        self.kind = kind
        self.bank = []  # (encoding, domain, outcome, known), the oldest first, overwritten as a ring
        self.pointer, self.steps, self.domains, self.multi_label = 0, steps, domains, multi_label
        self.wrong = []  # share of the labels that the momentum model predicted wrong, at each step
        self.supervised_loss = supervised_loss
        groups = [{"params": list(network.parameters()), "lr": learning_rate}]
        if scorer is not None:
            groups.append({"params": list(scorer.parameters()), "lr": settings.scorer.learning_rate or learning_rate})
        self.optimiser = torch.optim.AdamW(groups, weight_decay=0.0)

    def step(self, number, x_labelled, target, x_unlabelled, domain):
        """Take a step; return supervised loss, consistency loss with its weight, scorer loss, match rate."""
        s, matching = self.settings, self.settings.matching
        # 1. momentum encoder
        zeta = s.momentum.start + (s.momentum.end - s.momentum.start) * number / self.steps
        for slow, online in ((self.momentum, self.network.encoder), (self.momentum_head, self.network.head)):
            online_state = online.state_dict()
            for name, value in slow.state_dict().items():
                if value.is_floating_point():
                    value.copy_(zeta * value + (1 - zeta) * online_state[name])
                else:
                    value.copy_(online_state[name])
        # 2. online encoder, of the two pools in two calls or in one, and head on the labelled part
        x = torch.cat([x_labelled, x_unlabelled])
        if self.by_pool:
            z_labelled = self.network.encoder(x_labelled)
            z_unlabelled = self.network.encoder(x_unlabelled)
            z = torch.cat([z_labelled, z_unlabelled])
        else:
            z = self.network.encoder(x)
        supervised = self.supervised_loss(self.network.head(z[: len(x_labelled)]), target)
        # 3. queries and keys
        with torch.no_grad():
            encoded = self.momentum(x)
            momentum = unit(encoded)
            prediction = self.momentum_head(encoded)
            outcome = self.outcome(prediction, target)
        known = [row < len(target) for row in range(len(x))]
        queries = unit(z.detach()) if self.online_queries else momentum
        keys = torch.stack([*momentum, *(row[0] for row in self.bank)])
        key_domain = [*domain.tolist(), *(row[1] for row in self.bank)]
        key_prognosis = torch.stack([*outcome, *(row[2] for row in self.bank)])
        scale = 1.0
        if self.kind == "regression":
            in_batch = [row for row, is_known in zip(outcome, known, strict=True) if is_known]
            in_bank = [row[2] for row in self.bank if row[3]]
            scale = torch.std(torch.stack([*in_batch, *in_bank]), dim=0)
        # 4. propensity scorer, if a caliper needs it
        scorer_loss, query_score, key_score = torch.zeros(()), None, None
        if self.scorer is not None:
            logits = self.scorer(keys)
            scorer_loss = self.scorer_loss(logits, key_domain)
            key_score = self.score(logits.detach())
            query_score = self.score(self.scorer(queries).detach())
        # 5. CaliperNN
        matches = brute_force(
            queries.numpy(),
            keys.numpy(),
            query_domain=domain.numpy(),
            key_domain=np.array(key_domain),
            query_propensity=query_score,
            key_propensity=key_score,
            k=matching.k,
            fixed_caliper=matching.fixed_caliper,
            std_caliper=matching.std_caliper,
            caliper_scale=matching.caliper_scale,
            direction=matching.direction,
            query_prognosis=(outcome / scale).numpy(),
            key_prognosis=(key_prognosis / scale).numpy(),
            prognostic_caliper=self.prognostic_caliper,
        )
        # 6. consistency
        warm_up = round(s.warm_up * self.steps)
        weight = s.weight * (min(1.0, number / warm_up) if warm_up else 1.0)
        if self.prognostic_caliper is not None and self.kind == "classification":
            self.wrong.append((prediction[: len(target)].argmax(1) != target).double().mean().item())
            error = np.average(self.wrong, weights=0.9 ** np.arange(len(self.wrong))[::-1])
            weight *= min(1, s.pseudo_labels.error_gate / max(error, 1e-9)) ** 2
        rate = len(matches) / len(x)
        pairs = [((unit(z[[q]]) - keys[[k]]) ** 2).sum() for q, found, _ in matches for k in found]
        consistency = weight * rate * torch.stack(pairs).mean() if pairs else torch.zeros((), dtype=z.dtype)
        self.optimiser.zero_grad()
        (supervised + consistency + scorer_loss).backward()
        self.optimiser.step()
        # 7. the bank
        for row in zip(momentum, domain.tolist(), outcome, known, strict=True):
            if len(self.bank) < s.bank:
                self.bank.append(row)
            else:
                self.bank[self.pointer] = row
            self.pointer = (self.pointer + 1) % s.bank
        return supervised.item(), consistency.item(), scorer_loss.item(), rate

    def outcome(self, prediction, target):
        """Labels where they are known, else what the momentum model predicts."""
        if self.kind == "classification":
            predicted, true = torch.softmax(prediction, 1), torch.eye(prediction.shape[1])[target]
        elif self.kind == "regression":
            predicted, true = prediction.clone(), target[:, None]
        else:
            predicted, true = torch.sigmoid(prediction), target
        predicted[: len(target)] = true
        return predicted

    def scorer_loss(self, logits, domain):
        if self.multi_label:
            by_label = [self.weighted(logits[:, [s]], [int(row[s]) for row in domain]) for s in range(self.domains)]
            return sum(by_label) / self.domains
        return self.weighted(logits, domain)

    def weighted(self, logits, domain):
        log_p = torch.log(torch.softmax(logits, 1) if logits.shape[1] > 1 else self.both(torch.sigmoid(logits)))
        weight = [len(domain) / (len(set(domain)) * domain.count(s)) for s in domain]
        of_own = log_p[range(len(domain)), domain]
        return -(torch.tensor(weight, dtype=log_p.dtype) * of_own).sum() / len(domain)

    @staticmethod
    def both(p):
        return torch.cat([1 - p, p], 1)

    def score(self, logits):
        tempered = logits / self.settings.scorer.temperature
        if self.multi_label:
            return torch.sigmoid(tempered).numpy()
        return torch.sigmoid(tempered[:, 0]).numpy() if self.domains == 2 else torch.softmax(tempered, 1).numpy()
