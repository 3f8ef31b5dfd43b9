"""The claims of THESIS 7.3 about the parts of the algorithm: steps, metrics, times and vector lengths (figures 7.20 to 7.24)."""

import numpy as np
import pandas as pd

from overweave.experiments.base import Claim
from overweave.experiments.thesis_allocation.claim_tools import (
    BATCHES,
    SCENARIOS,
    all_within,
    average_claim,
    base_rows,
    by_algorithm,
    growth_exponent,
    holds_always,
    reasoned_claim,
    relative_changes,
    rounded,
    spread,
)
from overweave.planning.problem import HEADROOM


def of_breakdown(table: pd.DataFrame) -> list[Claim]:
    """Figure 7.20 (7.3.4): subscriptions, overlay and publishers moved separately."""
    alone = relative_changes(base_rows(table, "homogeneous"), "input_hz_mean", "manual-grape", "manual", "homogeneous")
    alone_other = relative_changes(table, "input_hz_mean", "manual-grape", "manual", "heterogeneous")
    mean = relative_changes(base_rows(table, "homogeneous"), "input_hz_mean", "cram-iou-root", "manual-grape", "homogeneous")
    most = {name: relative_changes(table, "input_hz_max", "cram-iou-root", "manual-grape", name) for name in SCENARIOS}
    all_three = relative_changes(table, "input_hz_max", "cram-iou", "manual", "heterogeneous")
    rates = {name: by_algorithm(base_rows(table, name), "input_hz_max", name)["cram-iou"] for name in SCENARIOS}
    higher = {name: round(float(each.iloc[-1]), 2) for name, each in rates.items()}
    return [
        Claim("MANUAL + GRAPE: the mean rate is MANUAL's (7.3.4; within 2 %), homogeneous", 0, alone, all_within(alone, 0.02)),
        reasoned_claim(
            "the same, heterogeneous",
            0,
            alone_other,
            all_within(alone_other, 0.02),
            "with few subscriptions per publisher not every broker wants every publication, and a better place saves some",
        ),
        reasoned_claim(
            "clustering without placement lowers the mean rate by up to 90 % (7.3.4)",
            -0.9,
            mean,
            min(mean.values()) <= -0.895,
            "the root receives everything",
        ),
        Claim(
            "clustering without placement leaves the maximum rate (7.3.4)",
            0,
            most,
            all(value >= -0.02 for by in most.values() for value in by.values()),
        ),
        Claim(
            "all three together lower the maximum rate by up to 85 %, heterogeneous (7.3.4)",
            -0.85,
            all_three,
            min(all_three.values()) <= -0.845,
        ),
        reasoned_claim(
            "CRAM's maximum rate is higher in the homogeneous than in the heterogeneous scenario, largest workload (7.3.4)",
            "homogeneous higher",
            higher,
            higher["homogeneous"] > higher["heterogeneous"],
            "at this size the largest broker of either serves as many publishers",
        ),
        *_relocation(table),
    ]


def _relocation(table: pd.DataFrame) -> list[Claim]:
    """The effect of the relocation of publishers alone (7.3.4)."""
    hops = {name: relative_changes(table, "hops", "cram-iou", "cram-iou-root", name) for name in SCENARIOS}
    delay = {name: relative_changes(table, "delay_s", "cram-iou", "cram-iou-root", name, HEADROOM) for name in SCENARIOS}
    output = {name: relative_changes(table, "output_utilisation_mean", "cram-iou", "cram-iou-root", name) for name in SCENARIOS}
    inputs = {name: relative_changes(table, "input_utilisation_mean", "cram-iou", "cram-iou-root", name) for name in SCENARIOS}
    return [
        average_claim(
            "relocating publishers lowers the links per delivery by 40 % on average (7.3.4)",
            (-0.4, -0.4),
            hops,
            "CRAM's clusters mostly fit one broker, where a publisher next to them needs no link: from one to nearly none",
        ),
        average_claim(
            "relocating publishers lowers the delay by 16 % (24 % heterogeneous) on average (7.3.4)",
            (-0.16, -0.24),
            delay,
            "our delay is that of queues for output, which stay where the subscribers are; links take no time in our model",
        ),
        Claim(
            "relocating publishers slightly lowers input utilisation (7.3.4)",
            "below 0",
            inputs,
            holds_always(inputs, lambda value: value < 0),
        ),
        reasoned_claim(
            "relocating publishers does not change output utilisation (7.3.4; within 2 %)",
            0,
            output,
            all(all_within(by, 0.02) for by in output.values()),
            "with few brokers the links from the root are a larger share of what is sent, and placement saves them",
        ),
    ]


def of_metrics(table: pd.DataFrame) -> list[Claim]:
    """Figure 7.21 (7.3.5)."""
    claims = []
    for measure, what, published in (
        ("input_hz_mean", "mean message rate", (0.55, 0.55)),
        ("input_hz_max", "maximum message rate", (0.93, 0.93)),
        ("hops", "number of links per delivery", (22.0, 22.0)),
    ):
        found = {name: relative_changes(base_rows(table, name), measure, "cram-xor", "cram-iou", name) for name in SCENARIOS}
        reason = "the same direction with another size: where IOU's deliveries pass hardly any link, a ratio says little"
        claims.append(average_claim(f"XOR's {what} is above IOU's on average (7.3.5)", published, found, reason))
    delay = {name: relative_changes(table, "delay_s", "cram-xor", "cram-iou", name, HEADROOM) for name in SCENARIOS}
    claims.append(average_claim("XOR's delay is 18 % above IOU's on average (7.3.5)", (0.18, 0.18), delay, BATCHES))
    fewer = {
        name: next(iter(relative_changes(table, "clusters", "cram-xor", "cram-iou", name, rule="no-worse").values()))
        for name in SCENARIOS
    }
    split = {name: relative_changes(base_rows(table, name), "clusters", "cram-xor", "cram-iou", name) for name in SCENARIOS}
    ours = {"rule no-worse": fewer, "rule split": split}
    text = "XOR makes 74 % (41 % heterogeneous) fewer clusters than IOU (7.3.5); our bar: at most half as many, rule no-worse"
    claims.append(Claim(text, {"homogeneous": -0.74, "heterogeneous": -0.41}, ours, max(fewer.values()) <= -0.5))
    alike = {
        name: {
            measure: round(spread(base_rows(table, name), measure, name), 4)
            for measure in ("brokers", "clusters", "input_utilisation_mean", "output_utilisation_mean")
        }
        for name in SCENARIOS
    }
    text = "INTERSECT, IOS and IOU hardly differ (7.3.5; largest difference, within 5 %)"
    holds = max(max(by.values()) for by in alike.values()) <= 0.05
    reason = "brokers and clusters are the same; input utilisation is below 0.1 % and depends on single filters"
    return [*claims, reasoned_claim(text, "almost no difference", alike, holds, reason)]


def of_times(table: pd.DataFrame) -> list[Claim]:
    """Figures 7.19e and 7.21d."""
    base = table[table["pool"] == table["pool"].min()]
    text = "the time of {} grows with the {} of the number of subscriptions (7.3.3; exponent)"
    kernels = "groups of equal subscriptions and a bound that makes packing needless for most pairs take the square away"
    growth = {name: {each: growth_exponent(base, each, name) for each in ("cram-iou", "pairwise-n")} for name in SCENARIOS}
    linear = {
        name: {each: growth_exponent(base, each, name) for each in ("automatic", "fbf", "bin-packing")} for name in SCENARIOS
    }
    shortest = {name: rounded(by_algorithm(base, "seconds", name).iloc[-1]) for name in SCENARIOS}
    slow = all(
        max(by[each] for each in ("automatic", "fbf", "bin-packing")) < min(by[each] for each in ("cram-iou", "pairwise-n"))
        for by in shortest.values()
    )
    saved = {name: relative_changes(base, "seconds", "pairwise-n", "cram-iou", name) for name in SCENARIOS}
    xor = {name: relative_changes(base, "seconds", "cram-xor", "cram-iou", name) for name in SCENARIOS}
    return [
        Claim("AUTOMATIC and the sorting algorithms take least time (7.3.3; largest workload, seconds)", "least", shortest, slow),
        reasoned_claim(
            text.format("AUTOMATIC, FBF and BIN PACKING", "first power"),
            1,
            linear,
            all(0.5 <= value <= 1.5 for by in linear.values() for value in by.values()),
            "these take hundredths of a second, much of it the same for any number",
        ),
        reasoned_claim(
            text.format("CRAM and PAIRWISE", "square"),
            2,
            growth,
            all(1.5 <= value <= 2.5 for by in growth.values() for value in by.values()),
            kernels,
        ),
        average_claim(
            "PAIRWISE takes 15 % (25 % heterogeneous) less time than CRAM-IOU on average (7.3.3)",
            (-0.15, -0.25),
            saved,
            "XOR compares subscriptions of different publishers as well, and our CRAM packs only where it has to",
        ),
        average_claim(
            "XOR takes 105 % (75 % heterogeneous) more time than the other metrics on average (7.3.5)",
            (1.05, 0.75),
            xor,
            "on a machine that was shared; the direction is the same",
        ),
    ]


def of_lengths(swept: pd.DataFrame) -> list[Claim]:
    """Figure 7.23 (7.3.8)."""
    by = {name: rows.set_index("bits").sort_index() for name, rows in swept.groupby("algorithm")}
    cram, packed = by["cram-iou"], by["bin-packing"]
    bits = np.log(cram.index.to_numpy(dtype=float))
    exponents = {name: round(float(np.polyfit(bits, np.log(rows["seconds"]), 1)[0]), 2) for name, rows in by.items()}
    brokers = {name: {f"{at:,}": int(value) for at, value in rows["brokers"].items()} for name, rows in by.items()}
    falls = all(rows["brokers"].iloc[-1] < rows["brokers"].iloc[0] for rows in (cram, packed))
    highest = rounded(cram["input_hz_max"])
    used = rounded(cram["input_utilisation_mean"], 6)
    over = {name: {f"{at:,}": int(value) for at, value in rows["overloaded"].items()} for name, rows in by.items()}
    return [
        reasoned_claim(
            "the time is linear in the length of vectors (7.3.8; exponent)",
            1,
            exponents,
            0.5 <= exponents["cram-iou"] <= 1.5,
            "words of 64 bits are compared at once, so that what does not depend on the length takes most of the time",
        ),
        reasoned_claim(
            "longer vectors need fewer brokers (7.3.8)",
            "fewer",
            brokers,
            bool(falls),
            "prices wander: of 8,000 subscriptions 22 % received none of the last 128 quotes and 2 % none of the last 1,024;"
            " they count as nothing, which the corrections leave so, and short vectors plan too few brokers",
        ),
        reasoned_claim(
            "longer vectors lower CRAM's maximum message rate (7.3.8)",
            "lower",
            highest,
            bool(cram["input_hz_max"].iloc[-1] < cram["input_hz_max"].iloc[0]),
            "ours depends on which cluster has to be split, not on the length",
        ),
        reasoned_claim(
            "longer vectors raise CRAM's mean input utilisation (7.3.8)",
            "higher",
            used,
            bool(cram["input_utilisation_mean"].iloc[-1] > cram["input_utilisation_mean"].iloc[0]),
            "it falls with the message rate, since longer vectors cluster better",
        ),
        reasoned_claim(
            "with the corrections no broker is overloaded (7.3.8; brokers above 1 on all quotes)",
            0,
            over,
            not any(value for each in over.values() for value in each.values()),
            "subscriptions that received nothing in a short window do so later, since prices wander;"
            " factors on what was received miss them",
        ),
    ]
