"""Every strategy, policy and focus against the same contract."""

from kernelscape.tests.contracts.searcher import SearcherContract


class TestMcts(SearcherContract):
    strategy = "mcts"


class TestMctsUct(SearcherContract):
    strategy = "mcts"
    options = {"policy": "uct", "focus": "best"}  # noqa: RUF012


class TestMctsByBound(SearcherContract):
    strategy = "mcts"
    options = {"policy": "by_bound", "focus": "bound"}  # noqa: RUF012


class TestMctsUniformFewSiblings(SearcherContract):
    strategy = "mcts"
    options = {"policy": "uniform", "rollout_siblings": 1, "max_held": 2}  # noqa: RUF012


class TestBoundFirst(SearcherContract):
    strategy = "bound"


class TestExhaustive(SearcherContract):
    strategy = "exhaustive"


class TestBeam(SearcherContract):
    strategy = "beam"


class TestRandom(SearcherContract):
    strategy = "random"
    options = {"random_patience": 3000}  # noqa: RUF012
    proves = False
