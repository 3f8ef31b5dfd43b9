"""The claims of THESIS 7.3 about utilisation, paths, delays and overload (figures 7.19 and 7.22)."""

import pandas as pd

from overweave.experiments.base import Claim
from overweave.experiments.thesis_allocation.claim_tools import (
    AWARE,
    BATCHES,
    FIRM,
    SCENARIOS,
    base_rows,
    by_algorithm,
    holds_always,
    holds_mostly,
    is_about,
    reasoned_claim,
    relative_changes,
    rounded,
    rows_of,
    utilisations,
)
from overweave.planning.problem import HEADROOM


def of_utilisation(table: pd.DataFrame) -> list[Claim]:
    """Figures 7.19a and b, 7.22a."""
    without = utilisations(table, 0.0)
    with_room = utilisations(table, HEADROOM)
    near = all(0.7 <= value <= 0.9 for by in without.values() for each in by.values() for value in each.values())
    wide = {
        name: {each: rounded(rows_of(table, each, name)["output_utilisation_deviation"]) for each in ("manual", *FIRM)}
        for name in SCENARIOS
    }
    small = all(
        value < by["manual"][key]
        for by in wide.values()
        for each in FIRM
        for key, value in by[each].items()
        if key in by["manual"]
    )
    inputs = {name: relative_changes(table, "input_utilisation_max", "bin-packing", "fbf", name) for name in SCENARIOS}
    outputs = {name: relative_changes(table, "output_utilisation_mean", "bin-packing", "fbf", name) for name in SCENARIOS}
    return [
        reasoned_claim(
            "BIN PACKING and CRAM use 80 % of the output on average, in every workload (7.3.3)",
            0.8,
            {"no headroom": without, f"headroom {HEADROOM:g}": with_room},
            near,
            "with no headroom ours fill their brokers more: the load that is planned with is the load that is measured here, and"
            " needs no correction for traffic to come",
        ),
        reasoned_claim(
            "output utilisation deviates less between brokers than under MANUAL (7.3.3)",
            "small",
            wide,
            small,
            "where few brokers are used, the last one, which is hardly filled, makes most of the deviation",
        ),
        reasoned_claim(
            "in most cases BIN PACKING has a higher output utilisation than FBF (7.3.6)",
            "above 0",
            outputs,
            holds_mostly(outputs, lambda value: value > 0),
            "FBF's brokers want nearly all publications, and links between them fill what deliveries leave",
        ),
        reasoned_claim(
            "BIN PACKING has a higher maximum of input utilisation than FBF (7.3.6)",
            "above 0",
            inputs,
            holds_mostly(inputs, lambda value: value > 0),
            "under both some broker receives nearly everything and knows nearly every filter",
        ),
    ]


def of_paths(table: pd.DataFrame) -> list[Claim]:
    """Figure 7.19c."""
    base = base_rows(table, "homogeneous")
    longest = int(rows_of(base, "manual", "homogeneous")["longest_path"].max())
    hops = by_algorithm(base, "hops", "homogeneous")
    order = ["cram-iou", "bin-packing", "automatic", "manual"]
    ours = {str(key): {each: round(float(row[each]), 3) for each in order} for key, row in hops.iterrows()}
    sorted_ = all(list(each.values()) == sorted(each.values()) for each in ours.values())
    none = rounded(rows_of(base_rows(table, "heterogeneous"), "cram-iou", "heterogeneous")["hops"])
    return [
        Claim("MANUAL's longest path (7.3.3; 80 brokers, fan-out 2)", 11, longest, longest == 11),
        Claim("links per delivery: CRAM-IOU < BIN PACKING < AUTOMATIC < MANUAL (7.3.3)", "in this order", ours, sorted_),
        Claim(
            "CRAM's deliveries pass no link in the heterogeneous scenario (7.3.3; below 0.05)", 0, none, max(none.values()) < 0.05
        ),
    ]


def of_delays(table: pd.DataFrame) -> list[Claim]:
    """Figure 7.19d."""
    longer = relative_changes(base_rows(table, "homogeneous"), "delay_s", "pairwise-n", "manual", "homogeneous")
    highest = max(longer.values(), default=float("nan"))
    sorting = {name: relative_changes(table, "delay_s", "bin-packing", "fbf", name, HEADROOM) for name in SCENARIOS}
    cram = {name: relative_changes(table, "delay_s", "cram-iou", "bin-packing", name, HEADROOM) for name in SCENARIOS}
    return [
        reasoned_claim(
            "PAIRWISE-N's delay is by as much as 56 % above MANUAL's (7.3.3)",
            0.56,
            longer,
            is_about(highest, 0.56),
            "the direction is the same; how much a nearly saturated broker delays depends on the model of its queue",
        ),
        reasoned_claim(
            "BIN PACKING's delay is above FBF's (7.3.3)",
            "above 0",
            sorting,
            holds_always(sorting, lambda value: value > 0),
            "in some workloads the longer paths between FBF's brokers take more than the batches of BIN PACKING's",
        ),
        reasoned_claim(
            "CRAM-IOU's delay is below BIN PACKING's (7.3.3)",
            "below 0",
            cram,
            holds_always(cram, lambda value: value < 0),
            BATCHES,
        ),
    ]


def of_overload(table: pd.DataFrame) -> list[Claim]:
    """7.3.3 and figure 7.22b."""
    found = {
        name: {each: {key: int(value) for key, value in rows_of(table, each, name)["overloaded"].items()} for each in algorithms}
        for name in SCENARIOS
        for algorithms in [("automatic", "pairwise-k", "pairwise-n", *AWARE)]
    }
    random = {name: {each: found[name][each] for each in ("automatic", "pairwise-k")} for name in SCENARIOS}
    pairwise = {name: found[name]["pairwise-n"] for name in SCENARIOS}
    many = list(pairwise["heterogeneous"].values())[1:]
    return [
        reasoned_claim(
            "AUTOMATIC and PAIRWISE-K overload a broker in every workload (7.3.3, 7.3.7)",
            "at least one",
            random,
            all(value > 0 for by in random.values() for each in by.values() for value in each.values()),
            "with a quarter of the subscriptions that saturate MANUAL, random brokers may all hold what they are given",
        ),
        reasoned_claim(
            "PAIRWISE-N overloads nobody in the homogeneous scenario (7.3.3)",
            0,
            pairwise["homogeneous"],
            not any(pairwise["homogeneous"].values()),
            "a broker in the middle of a random tree may carry too much; it depends on the draw",
        ),
        Claim("PAIRWISE-N overloads brokers beyond 1,025 subscriptions, heterogeneous (7.3.7)", "at least one",
            pairwise["heterogeneous"], all(value > 0 for value in many)),
        Claim(
            "FBF, BIN PACKING and CRAM overload nobody (7.3.3)",
            0,
            {name: {each: max(found[name][each].values()) for each in AWARE} for name in SCENARIOS},
            not any(value for by in found.values() for each in AWARE for value in by[each].values()),
        ),
    ]  # fmt: skip
