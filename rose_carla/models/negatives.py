"""The people who are turned down: the rows that recourse is computed for."""

from __future__ import annotations

import numpy as np
import pandas as pd
from carla.data.catalog import DataCatalog
from carla.models.api import MLModel
from rose_carla._lib.params import check_seed
from rose_carla.errors import DataError, short_repr, unknown_name
from rose_carla.models.contract import check_data, feature_order
from rose_carla.models.outcome import probabilities

#: The paper's choice per data set: (rows to look at, most rows to take). Any other data set: all of its test split.
PAPER_SELECTION: dict[str, tuple[str, int | None]] = {
    "german": ("all", None),
    "german-typed": ("all", None),
    "adult": ("test", 200),
    "compas": ("test", None),
}


def negative_instances(
    model: MLModel,
    data: DataCatalog | None = None,
    *,
    split: str | None = None,
    limit: int | None = None,
    seed: int = 0,
) -> pd.DataFrame:
    """Encoded rows that ``model`` predicts unfavourably, selected as in the paper unless told otherwise.

    The paper takes all of German, 200 random rows of Adult's test split and all of COMPAS' test split.

    Parameters
    ----------
    model
        Any CARLA model.
    data
        Defaults to the model's own data set.
    split
        ``"all"``, ``"train"`` or ``"test"``.
    limit
        Draw at most so many rows, without replacement.
    seed
        Seed of that draw.

    Returns
    -------
    pd.DataFrame
        Columns in ``model.feature_input_order`` and, like CARLA's own ``predict_negative_instances``, the target
        (CRUD and CausalRecourse ask for it); row labels as in the data set.

    Examples
    --------
    >>> from rose_carla import datasets, models
    >>> data = datasets.load("adult")
    >>> models.negative_instances(models.train(data, "linear")).shape
    (200, 14)
    """
    order = feature_order(model)
    data = model.data if data is None else data
    check_data(data)
    frames = {"all": "df", "train": "df_train", "test": "df_test"}
    paper_split, paper_limit = PAPER_SELECTION.get(getattr(data, "name", ""), ("test", None))
    if split is None and limit is None:
        limit = paper_limit
    split = paper_split if split is None else split
    if not isinstance(split, str) or split not in frames:
        raise DataError(unknown_name("split", split, frames))
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, (int, np.integer)) or limit < 1):
        raise DataError(f"limit has to be a whole number of at least 1, got {short_repr(limit)}.")
    seed = check_seed(seed)
    rows = getattr(data, frames[split])
    missing = [column for column in order if column not in rows.columns]
    if missing:
        raise DataError(f"The data set lacks columns that the model takes: {', '.join(map(str, missing[:5]))}.")
    rows = rows[[*order, data.target]]
    negative = rows[probabilities(model, rows, rows.index).argmax(axis=1) == 0]
    if negative.empty:
        raise DataError(f"The classifier turns nobody down among {len(rows)} rows of the {split} split.")
    if limit is not None and limit < len(negative):
        chosen = np.random.default_rng(seed).choice(len(negative), size=limit, replace=False)
        negative = negative.iloc[np.sort(chosen)]
    return negative
