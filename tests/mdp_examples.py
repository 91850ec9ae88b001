"""Grid worlds for the tests of the MDP, its checker, its adapter and PPO."""

from __future__ import annotations

import numpy as np
from rose_carla.mdp import Step

#: Moves of a grid world, cells to a move: one or two, along either feature.
MOVES = [(dx * size, dy * size) for size in (1, 2) for dx, dy in ((1, 0), (-1, 0), (0, 1), (0, -1))]


class GridWorld:
    """Cells of a square, seen as points of [0, 1]^2; goals pay their reward and end an episode, nothing else pays.

    Parameters
    ----------
    side
        Cells along each side.
    goals
        From cells to rewards.
    walls
        Cells that no action enters or jumps over.
    moves
        The actions.
    gamma
        Discount of one cell: the size of an action is the number of cells.
    max_steps
        Actions to an episode.
    """

    width = 2

    def __init__(self, side=5, goals=None, walls=(), moves=MOVES, gamma=0.9, max_steps=30):
        self.side, self.goals, self.walls = side, goals or {(side - 1, side - 1): 100.0}, set(walls)
        self.moves, self.gamma, self.max_steps = list(moves), gamma, max_steps
        self.n_actions = len(self.moves)
        cells = [(x, y) for x in range(side) for y in range(side)]
        self.starts = [cell for cell in cells if cell not in self.goals and cell not in self.walls]
        # Tables over numbered cells, for speed; -1 where a move is impossible.
        self._numbers = {cell: number for number, cell in enumerate(cells)}
        self._points = self.points(cells)
        ends = [[self.next_cell(cell, action) for action in range(self.n_actions)] for cell in cells]
        self._next = np.array([[-1 if end is None else self._numbers[end] for end in row] for row in ends])
        self._rewards = np.array([self.goals.get(cell, 0.0) for cell in cells])
        self._is_goal = np.array([cell in self.goals for cell in cells])
        self._sizes = np.array([self.size(action) for action in range(self.n_actions)])

    def next_cell(self, cell, action):
        """Return the cell an action leads to, None if it is impossible."""
        dx, dy = self.moves[action]
        for _ in range(abs(dx) + abs(dy)):
            cell = (cell[0] + int(np.sign(dx)), cell[1] + int(np.sign(dy)))
            if cell in self.walls or not (0 <= cell[0] < self.side and 0 <= cell[1] < self.side):
                return None
        return cell

    def size(self, action):
        return float(np.abs(self.moves[action]).sum())

    def points(self, cells):
        return np.array(cells, dtype=float) / (self.side - 1)

    def masks(self, cells):
        return self._next[[self._numbers[cell] for cell in cells]] >= 0

    def reset(self, n_envs, rng):
        self._rng = rng
        self._at = self._draw_starts(n_envs)
        self._taken = np.zeros(n_envs, dtype=int)
        return self._points[self._at]

    def mask(self):
        return self._next[self._at] >= 0

    def step(self, actions):
        led = self._next[self._at, actions]
        assert (led >= 0).all(), "impossible action taken"
        self._taken += 1
        reached = self._is_goal[led]
        truncated = ~reached & (self._taken >= self.max_steps)
        ended = reached | truncated
        self._at = led.copy()
        self._at[ended] = self._draw_starts(ended.sum())
        self._taken[ended] = 0
        return Step(
            observations=self._points[self._at],
            rewards=self._rewards[led],
            sizes=self._sizes[actions],
            discounts=self.gamma ** self._sizes[actions],
            terminated=reached,
            truncated=truncated,
            reached=reached.copy(),
            finals=self._points[led],
        )

    def _draw_starts(self, n):
        return np.array(
            [self._numbers[self.starts[i]] for i in self._rng.integers(len(self.starts), size=n)], dtype=int
        )


def optimal_values(world):
    """Optimal discounted return from each start, by value iteration."""
    values = dict.fromkeys([*world.starts, *world.goals], 0.0)
    for _ in range(4 * world.side**2):
        for cell in world.starts:
            options = [(world.next_cell(cell, a), world.gamma ** world.size(a)) for a in range(world.n_actions)]
            values[cell] = max(
                world.goals.get(end, 0.0) + discount * values[end] for end, discount in options if end is not None
            )
    return {cell: values[cell] for cell in world.starts}


def greedy_values(world, policy):
    """Discounted return of the greedy policy from each start, and the number of cells walked."""
    found = {}
    for start in world.starts:
        cell, value, discount, cells = start, 0.0, 1.0, 0.0
        for _ in range(world.max_steps):
            action = int(policy.greedy(world.points([cell]), world.masks([cell]))[0])
            cell, size = world.next_cell(cell, action), world.size(action)
            value += discount * world.goals.get(cell, 0.0)
            discount *= world.gamma**size
            cells += size
            if cell in world.goals:
                break
        found[start] = value, cells
    return found
