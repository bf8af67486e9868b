"""scikit-learn's face: a classifier and a regressor over the same engine as ``streamomd.train``."""

from streamomd.core.errors import MissingExtraError

try:
    from sklearn.utils.validation import validate_data as _  # noqa: F401 (is it there?)
except ImportError as error:
    raise MissingExtraError(
        f"OMDClassifier and OMDRegressor need scikit-learn 1.6 or later ({error}): "
        "pip install 'streamomd[sklearn]'"
    ) from None

from streamomd.integrations.sklearn.classifier import OMDClassifier
from streamomd.integrations.sklearn.regressor import OMDRegressor

__all__ = ["OMDClassifier", "OMDRegressor"]
