from __future__ import annotations
from dataclasses import dataclass
import numpy as np
from rose_carla.planning.exchange import Exchange
from rose_carla.planning.walk import walk


@dataclass(frozen=True)
class PlannerSettings:
    max_actions: int = 50
    n_search: int = 100
    n_check: int = 500
    confidence: float = 0.95
    sparsity_weight: float = 1.0
    n_lines: int = 4
    rounds: int = 4
    max_checks: int = 8
    aim: float = 1.0


class Planner:
    def __init__(self, task, policy, settings):
        self.task, self.policy, self.s = task, policy, settings
        self.ex = Exchange(task, policy, settings.sparsity_weight, settings.n_lines)

    def settle(self, drafts, rows, rngs, log=None):
        s, task = self.s, self.task
        best = drafts[np.arange(len(drafts))]
        sure = np.zeros(len(drafts), bool)
        rates = np.full(len(drafts), np.nan)
        deviation = np.sqrt(task.limit * (1 - task.limit) / s.n_check)
        aim = task.limit - (1.645 + s.aim) * deviation
        todo = rows
        nchecks = 0
        for _ in range(s.max_checks):
            if not len(todo):
                break
            part = drafts[todo]
            rate = task.judge(part, s.n_check, [rngs[r] for r in todo], 2 * s.confidence - 1)
            nchecks += len(todo)
            margin = task.margins(part.ends)
            ok = (rate.upper < task.limit) & (margin > 0)
            needed = task.margins_needed(margin, rate, s.n_check, aim)
            cheaper = ~sure[todo] | (self.ex.scores(part) < self.ex.scores(best[todo]))
            take = ok & cheaper
            best[todo[take]] = part[take]
            rates[todo[take]] = rate.rate[take]
            # those that failed although sure before: stop. accepted: try cheaper
            go = ok | ~sure[todo]
            sure[todo[ok]] = True
            needed = np.where(ok, np.minimum(needed, margin), np.maximum(needed, margin + 0.02 * np.abs(margin)))
            todo, part, margin, needed, ok = todo[go], part[go], margin[go], needed[go], ok[go]
            if not len(todo):
                break
            new = self.ex.improve(part, margin, needed, s.rounds)
            changed = np.abs(new.ends - part.ends).max(1) > 1e-9
            drafts[todo[changed]] = new[changed]
            todo = todo[changed]
        self.nchecks = nchecks
        return best, sure, rates
