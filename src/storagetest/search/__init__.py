"""Looking for a maximum with few measurements. Pure: a strategy asks for points and is told values.

Theory. What a target gives at most depends on several *parameters* (block size, connections, clients …), of
which each has a few values in an order. All combinations are the *grid*; measuring all of it takes days. A
:class:`Strategy` asks for one point after the other and is told what was measured there; what it thinks is
best, and which parameter stands in the way of more, it says in the end. Two strategies have one interface:

- :class:`OneAtATime`: the published climb: the best value of the first parameter with all others fixed, then
  of the second, and so on;
- :class:`Surrogate`: a model of all that was measured says where to look next, how sure it is, and when
  looking on is no longer worth it.
"""

from __future__ import annotations

from storagetest.search.base import SearchResult, Strategy
from storagetest.search.bayesian import BayesianSearch
from storagetest.search.one_at_a_time import OneAtATime
from storagetest.search.space import Parameter, Point, Space

__all__ = ["BayesianSearch", "OneAtATime", "Parameter", "Point", "SearchResult", "Space", "Strategy"]
