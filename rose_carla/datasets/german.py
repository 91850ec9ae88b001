"""German Credit: 1,000 applicants, 20 attributes, in two forms.

``coded``: every attribute a number, categories by the number of their code, 20 features; the form of the ROSE paper.
``typed``: 7 continuous and 13 categorical features with readable values; the form to show to a person.

Source: UCI Statlog German Credit (Hofmann, 1994), CC BY 4.0.
"""

from __future__ import annotations

import pandas as pd
from rose_carla.datasets.raw import raw_file
from rose_carla.datasets.schema import Schema

_TARGET = "credit-risk"

_ATTRIBUTES = (
    "checking-account duration credit-history purpose credit-amount savings employment-since installment-rate "
    "personal-status other-debtors residence-since property age other-installment-plans housing existing-credits "
    "job people-liable telephone foreign-worker"
).split()

_NUMBERS = (
    "age",
    "credit-amount",
    "duration",
    "existing-credits",
    "installment-rate",
    "people-liable",
    "residence-since",
)

#: Readable value of each code that occurs in the file.
_VALUES = {
    "checking-account": {"A11": "below 0 DM", "A12": "0 to 200 DM", "A13": "200 DM or more", "A14": "none"},
    "credit-history": {
        "A30": "no credits or all repaid",
        "A31": "all repaid at this bank",
        "A32": "existing repaid so far",
        "A33": "delays in the past",
        "A34": "critical account",
    },
    "purpose": {
        "A40": "new car",
        "A41": "used car",
        "A42": "furniture",
        "A43": "radio or television",
        "A44": "appliances",
        "A45": "repairs",
        "A46": "education",
        "A48": "retraining",
        "A49": "business",
        "A410": "other",
    },
    "savings": {
        "A61": "below 100 DM",
        "A62": "100 to 500 DM",
        "A63": "500 to 1000 DM",
        "A64": "1000 DM or more",
        "A65": "unknown or none",
    },
    "employment-since": {
        "A71": "unemployed",
        "A72": "below 1 year",
        "A73": "1 to 4 years",
        "A74": "4 to 7 years",
        "A75": "7 years or more",
    },
    "personal-status": {
        "A91": "male, divorced or separated",
        "A92": "female, divorced, separated or married",
        "A93": "male, single",
        "A94": "male, married or widowed",
    },
    "other-debtors": {"A101": "none", "A102": "co-applicant", "A103": "guarantor"},
    "property": {
        "A121": "real estate",
        "A122": "building society or life insurance",
        "A123": "car or other",
        "A124": "unknown or none",
    },
    "other-installment-plans": {"A141": "bank", "A142": "stores", "A143": "none"},
    "housing": {"A151": "rent", "A152": "own", "A153": "for free"},
    "job": {
        "A171": "unemployed or unskilled non-resident",
        "A172": "unskilled resident",
        "A173": "skilled",
        "A174": "management or highly qualified",
    },
    "telephone": {"A191": "no", "A192": "yes"},
    "foreign-worker": {"A201": "yes", "A202": "no"},
}

_IMMUTABLES = ("age", "foreign-worker", "personal-status")

SCHEMAS = {
    "coded": Schema("german", _TARGET, tuple(sorted(_ATTRIBUTES)), (), _IMMUTABLES),
    "typed": Schema("german-typed", _TARGET, _NUMBERS, tuple(sorted(_VALUES)), _IMMUTABLES),
}


def frame(form: str = "coded") -> pd.DataFrame:
    """The table in one of the two forms; target 1 = good credit risk (700 rows)."""
    raw = pd.read_csv(raw_file("german/german.data"), sep=" ", header=None, names=[*_ATTRIBUTES, _TARGET], dtype=str)
    table = pd.DataFrame(index=raw.index)
    for number, column in enumerate(_ATTRIBUTES, start=1):
        if column in _NUMBERS:
            table[column] = raw[column].astype("int64")
        elif form == "typed":
            table[column] = raw[column].map(_VALUES[column]).astype(object)
        elif column == "personal-status":
            table[column] = (raw[column] != "A92").astype("int64")  # 0 = female, as the paper's data has it
        else:
            table[column] = raw[column].str.removeprefix(f"A{number}").astype("int64")
    table[_TARGET] = 2 - raw[_TARGET].astype("int64")
    return table
