"""scikit-learn's own checks of estimators."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from okapi import OkapiClassifier, OkapiRegressor

pytestmark = pytest.mark.filterwarnings("ignore:method .* needs unlabelled rows:UserWarning")


@parametrize_with_checks(
    [
        OkapiClassifier(steps=60, learning_rate=0.01, random_state=0),
        OkapiRegressor(steps=60, learning_rate=0.01, random_state=0),
        OkapiClassifier("erm", steps=60, learning_rate=0.01, random_state=0),
    ]
)
def test_it_is_an_estimator(estimator, check):
    check(estimator)
