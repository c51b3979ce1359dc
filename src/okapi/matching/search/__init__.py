"""The exact k nearest admissible keys of every query: the hot loop of matching.

Three ideas make it quick, and none changes the result:

1. *A caliper saves work.* A `Plan` puts queries and keys in an order in which the keys that a caliper admits lie side
   by side: sorted by propensity, they are a window of each query. A block of like queries is compared with its window
   only; pairs within the window that are inadmissible are excluded by raising their scores.
2. *Candidates come from a matrix product.* Of centred and scaled vectors in float32, ``|k|^2 / 2 - q.k`` ranks the keys
   of a query as distance does. The smallest scores, a few more than k, are candidates.
3. *Distances are exact.* Candidates are compared again as summed squared differences in float64. A bound on the
   product's error shows whether a key that was not fetched could be nearer; where it could, more are fetched. So the
   result depends neither on block sizes nor on an offset of the data.

`nearest` does it once; `Search` keeps what it prepared, to search again after keys were removed. In the order to read:

============= =======================================================================================================
k_nearest.py  `nearest` and `Search`: candidates, exact distances, and whether they settle the result
panels.py     scores of a block of queries with its keys
selection.py  the smallest scores of every row
vectors.py    vectors centred and scaled, and the bound on the product's error
plan.py       `Plan`: blocks, exclusion, admission
domains.py    plan without a std-caliper
windows.py    plan of the std-caliper between two domains
scores.py     plan of the std-caliper between any number of domains
multi_label.py plan of multi-label domains
pairs.py      calipers on covariates, and values that must differ
prognosis.py  the prognostic caliper: a plan of its own, or a filter of another
============= =======================================================================================================
"""

from okapi.matching.search.k_nearest import Search, nearest

__all__ = ["Search", "nearest"]
