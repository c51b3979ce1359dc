"""One online training step as the method states it: literal, slow, sharing nothing with the library but brute force."""

import copy

import numpy as np
import torch
from tests.matching.oracle import brute_force


def unit(x):
    return x / x.norm(dim=1, keepdim=True)


class Transcription:
    """State and step of online Okapi with momentum or online queries."""

    def __init__(self, network, scorer, *, settings, steps, domains, sets, supervised_loss, learning_rate, kind):
        self.network, self.scorer, self.settings = network, scorer, settings
        self.momentum = copy.deepcopy(network.encoder).eval()
        self.momentum_head = copy.deepcopy(network.head)
        self.kind = kind
        self.bank = []  # (encoding, domain, outcome, known), the oldest first, overwritten as a ring
        self.pointer, self.steps, self.domains, self.sets = 0, steps, domains, sets
        self.wrong = []  # share of the labels that the momentum model predicted wrong, at each step
        self.supervised_loss = supervised_loss
        scorer_rate = settings.scorer_learning_rate or learning_rate
        self.optimiser = torch.optim.AdamW(
            [
                {"params": list(network.parameters()), "lr": learning_rate},
                {"params": list(scorer.parameters()), "lr": scorer_rate},
            ],
            weight_decay=0.0,
        )

    def step(self, number, x_labelled, target, x_unlabelled, domain):
        """Take a step; return supervised loss, consistency loss with its weight, scorer loss, match rate."""
        s = self.settings
        # 1. momentum encoder
        zeta = s.momentum + (s.final_momentum - s.momentum) * number / self.steps
        for slow, online in ((self.momentum, self.network.encoder), (self.momentum_head, self.network.head)):
            online_state = online.state_dict()
            for name, value in slow.state_dict().items():
                if value.is_floating_point():
                    value.copy_(zeta * value + (1 - zeta) * online_state[name])
                else:
                    value.copy_(online_state[name])
        # 2. online encoder, head on the labelled part
        x = torch.cat([x_labelled, x_unlabelled])
        z = self.network.encoder(x)
        supervised = self.supervised_loss(self.network.head(z[: len(x_labelled)]), target)
        # 3. queries and keys
        with torch.no_grad():
            encoded = self.momentum(x)
            momentum = unit(encoded)
            prediction = self.momentum_head(encoded)
            outcome = self.outcome(prediction, target)
        known = [row < len(target) for row in range(len(x))]
        queries = momentum if s.queries == "momentum" else unit(z.detach())
        keys = torch.stack([*momentum, *(row[0] for row in self.bank)])
        key_domain = [*domain.tolist(), *(row[1] for row in self.bank)]
        key_outcome = torch.stack([*outcome, *(row[2] for row in self.bank)])
        scale = 1.0
        if self.kind == "regression":
            key_known = [*known, *(row[3] for row in self.bank)]
            scale = torch.std(key_outcome[key_known], dim=0)
        # 4. propensity scorer
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
            k=s.k,
            fixed_caliper=s.fixed_caliper,
            std_caliper=s.std_caliper,
            caliper_scale=s.caliper_scale,
            direction=s.direction,
            query_outcome=(outcome / scale).numpy(),
            key_outcome=(key_outcome / scale).numpy(),
            outcome_caliper=s.outcome_caliper,
        )
        # 6. consistency
        warm_up = round(s.warm_up * self.steps)
        weight = s.weight * (min(1.0, number / warm_up) if warm_up else 1.0)
        if s.outcome_caliper is not None and self.kind == "classification":
            self.wrong.append((prediction[: len(target)].argmax(1) != target).double().mean().item())
            error = np.average(self.wrong, weights=0.9 ** np.arange(len(self.wrong))[::-1])
            weight *= min(1, s.outcome_tolerance / max(error, 1e-9)) ** 2
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
            said, true = torch.softmax(prediction, 1), torch.eye(prediction.shape[1])[target]
        elif self.kind == "regression":
            said, true = prediction.clone(), target[:, None]
        else:
            said, true = torch.sigmoid(prediction), target
        said[: len(target)] = true
        return said

    def scorer_loss(self, logits, domain):
        if self.sets:
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
        tempered = logits / self.settings.temperature
        if self.sets:
            return torch.sigmoid(tempered).numpy()
        return torch.sigmoid(tempered[:, 0]).numpy() if self.domains == 2 else torch.softmax(tempered, 1).numpy()
