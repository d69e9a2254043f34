"""Search for a maximum with few measurements. Pure: a strategy proposes points and records values.

Theory. A target's maximum depends on several *parameters* (block size, connections, clients …), each with a
few ordered values. All combinations are the *grid*; measuring all of it takes days. A :class:`Strategy`
proposes one point after the other and records the value measured there. Its result is the best point, and the
parameters that limit it. Three strategies have one interface:

- :class:`OneAtATime`: the published method: the best value of the first parameter with all others fixed, then
  of the second, and so on;
- :class:`Stepwise`: from a starting point, each parameter in turn as long as it gets better;
- :class:`BayesianSearch`: a model of all measurements chooses the next point, states its certainty, and ends
  the search when little is to be gained.
"""

from __future__ import annotations

from storagetest.search.base import SearchResult, Strategy
from storagetest.search.bayesian import BayesianSearch
from storagetest.search.one_at_a_time import OneAtATime
from storagetest.search.space import Parameter, Point, Space
from storagetest.search.stepwise import Stepwise

__all__ = [
    "BayesianSearch",
    "OneAtATime",
    "Parameter",
    "Point",
    "SearchResult",
    "Space",
    "Stepwise",
    "Strategy",
]
