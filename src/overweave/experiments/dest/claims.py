"""The claims of DEST III-D and V, each with the published result and ours."""

from typing import Any

import numpy as np
import pandas as pd

from overweave.experiments.base import Claim
from overweave.experiments.dest import chains, general
from overweave.experiments.dest.networks import TITLES


def of_chains(table: pd.DataFrame) -> list[Claim]:
    """Figures 11 to 14."""
    claims = [_matches(table), *_utilisations(table), *_latencies(table)]
    return [claim for claim in claims if claim is not None]


def of_general(found: general.Measured) -> list[Claim]:
    """Figures 15 to 18."""
    return [*_loads(found.rates), *_list_sizes(found.brokers), *_duplicates(found.network), *_stored(found)]


def of_lists(table: pd.DataFrame) -> list[Claim]:
    """Figures 19 to 21."""
    claims = []
    for brokers, degree, share, published, tolerance in (
        (100, 3, 0.5, 2.84, 0.12),
        (700, 6, 1.0, 3.8, 0.1),
        (700, 9, 1.0, 3.2, 0.1),
    ):
        ours = mean_length(_rows(table, brokers, degree, share))
        text = f"destinations per message, {brokers} brokers of degree {degree}, {share:.0%} interested (within {tolerance:.0%})"
        claims.append(Claim(text, published, round(ours, 2), abs(ours / published - 1) <= tolerance))
    claims.append(_quantiles(table))
    table = table[table["shape"] == "random-graph"]
    fits = {f"{share:.0%}": _linear(table, share) for share in sorted(set(table["share"]))}
    text = "lists at the source grow linearly with the number of brokers (figure 21; correlation)"
    return [*claims, Claim(text, 1, fits, min(fits.values()) > 0.99)]


def of_robustness(table: pd.DataFrame) -> list[Claim]:
    """Figures 23 and 24, of all pairs of publisher and subscriber, those of crashed brokers included."""
    claims = []
    for kind, protocol, published, points in (
        ("brokers", "destination", 21.8, 2),
        ("brokers", "filter-general", 8.7, 2),
        ("connections", "destination", 86.2, 4),
        ("connections", "filter-general", 17.5, 2),
    ):
        some = table[(table["kind"] == kind) & (table["protocol"] == protocol) & (table["share"] == 0.5)]["delivered"]
        ours = {
            "delivered": round(100 * float(some.mean()), 1),
            "overlays": len(some),
            "deviation": round(100 * float(some.std()), 1),
        }
        text = f"per cent delivered by {TITLES[protocol]} with 50 % of the {kind} gone (within {points} points)"
        claims.append(Claim(text, published, ours, abs(100 * float(some.mean()) - published) <= points))
    return claims


def of_reorganisation(table: pd.DataFrame) -> list[Claim]:
    """Figure 22: what the self-organising overlay saves, with links to spare and without."""
    claims = []
    for most, some in table.groupby("degree_max", sort=False):
        seeds, last = some["seed"].nunique(), some["period"].max()
        hops = (some["hops"] * some["share"]).groupby(some["period"]).sum() / seeds
        links = some.groupby(["period", "seed"])["links"].first().groupby("period").mean()
        ours = {
            "before": round(float(hops[0]), 2),
            "after": round(float(hops[last]), 2),
            "links before": round(float(links[0])),
            "links after": round(float(links[last])),
        }
        saved = 1 - hops[last] / hops[0]
        if most:
            text = f"hops of a message at 70 brokers, at most {most} links a broker: at least 10 % fewer"
            claims.append(Claim(text, {"before": 3.97, "after": 3.51}, ours, bool(saved >= 0.1)))
        else:
            text = "hops of a message at 70 brokers, no broker with more links than it began with (but two): not more"
            claims.append(Claim(text, None, ours, bool(saved >= 0)))
    return claims


def of_tables(table: pd.DataFrame) -> list[Claim]:
    """What knowing all brokers costs."""
    row = table.iloc[0]
    sizes = {"said": int(row["bytes_said"]), "in Python": int(row["bytes_in_python"])}
    updates = {"messages": int(row["update_messages"]), "brokers": int(row["brokers"]), "links": int(row["links"])}
    return [
        Claim("bytes of TRT and SPRT at 100 brokers", 11_000, sizes, sizes["said"] <= 11_000),
        Claim(
            "messages between brokers for a change of the overlay: one to each",
            100,
            updates,
            updates["messages"] <= updates["brokers"],
        ),
    ]


def mean_length(rows: pd.DataFrame, of: str = "messages") -> float:
    """The mean length of lists."""
    return float((rows["length"] * rows[of]).sum() / rows[of].sum())


# ---- chains


def _matches(table: pd.DataFrame) -> Claim:
    per_publication = (
        table.groupby(["protocol", "brokers"])["matches"].sum()
        / table.groupby(["protocol", "brokers"])["subscriptions"].nunique()
    )
    longest = int(table["brokers"].max())
    ours = {TITLES[str(protocol)]: float(per_publication[protocol, longest]) for protocol in table["protocol"].unique()}
    most = {"filter": longest, "destination": 2, "merc": 3}
    exact = all(abs(value - min(brokers, most[protocol])) < 1e-9 for (protocol, brokers), value in per_publication.items())
    published = {name: count for name, count in (("FBR", longest), ("D-DBR", 2), ("MERC", 3)) if name in ours}
    return Claim(
        f"matches per publication on a chain: FBR at every broker, D-DBR 2, MERC 3; here of {longest} brokers",
        published,
        ours,
        exact,
    )


def _utilisations(table: pd.DataFrame) -> list[Claim]:
    longest = table[(table["brokers"] == table["brokers"].max()) & (table["subscriptions"] == chains.SUBSCRIPTIONS_MATCHED)]
    claims = []
    for protocol, rows in longest.groupby("protocol", sort=False):
        last = int(rows["position"].max())
        middle = (last - 1) // 2 + 1
        busy = {"filter": set(range(1, last + 1)), "destination": {1, last}, "merc": {1, middle, last}}[str(protocol)]
        ours = {int(row.position): round(100 * row.utilisation, 1) for row in rows.itertuples()}
        published = {position: 63 if position in busy else 2 for position in ours}
        holds = all(abs(ours[position] - published[position]) <= 2 for position in ours)
        text = f"per cent that brokers of a chain are busy with 2,000 subscriptions, {TITLES[str(protocol)]} (figure 14)"
        claims.append(Claim(text, published, ours, holds))
    return claims


def _latencies(table: pd.DataFrame) -> list[Claim]:
    latency = table.groupby(["protocol", "subscriptions", "brokers"])["latency_s"].first()
    longest = int(table["brokers"].max())
    at = {TITLES[str(protocol)]: latency[protocol, 2000, longest] for protocol in table["protocol"].unique()}
    ours = {name: round(1000 * float(value), 1) for name, value in at.items()}
    claims = [
        Claim(
            f"milliseconds of latency with {longest} brokers, 2,000 subscriptions: FBR far above the others (figure 13)",
            "FBR > MERC > D-DBR",
            ours,
            bool(at["FBR"] > 2 * max(value for name, value in at.items() if name != "FBR")),
        )
    ]
    if "MERC" in at:
        ratio = float(at["MERC"] / at["D-DBR"])
        claims.append(
            Claim("latency of MERC over that of D-DBR, as three matches to two", 1.5, round(ratio, 2), 1.3 <= ratio <= 1.7)
        )
    return claims


# ---- the general topology


def _loads(rates: pd.DataFrame) -> list[Claim]:
    slow = rates[rates["protocol"] == "filter-general"].set_index("rate")["latency_s"]
    fast = rates[rates["protocol"] == "destination"].set_index("rate")["latency_s"]
    ours = {f"FBR at {rate:,}": round(1000 * float(slow[rate])) for rate in (2000, 2500)}
    ours["D-DBR at 14,000"] = round(1000 * float(fast[14_000]))
    published = {"FBR at 2,000": 1087, "FBR at 2,500": 2843, "D-DBR at 14,000": 491}
    text = "milliseconds of latency at publications per minute: D-DBR at seven times the rate is faster by 55 % (figure 15)"
    claims = [
        Claim(text, published, ours, float(fast[14_000]) <= 0.45 * float(slow[2000]) and float(slow[2500]) > float(slow[2000]))
    ]
    edge = rates[rates["protocol"] == "merc"].set_index("rate")["latency_s"]
    if len(edge):
        shown = {
            f"{TITLES[name]} at {rate:,}": round(1000 * float(of[rate]))
            for name, of, rate in (("merc", edge, 8000), ("destination", fast, 8000), ("filter-general", slow, 2000))
        }
        text = "MERC with edge brokers of eight cores lies between D-DBR and FBR below 11,000 publications per minute (figure 15)"
        claims.append(Claim(text, "D-DBR < MERC < FBR", shown, float(fast[8000]) <= float(edge[8000]) < float(slow[2000])))
    return claims


def _list_sizes(brokers: pd.DataFrame) -> list[Claim]:
    some = brokers[brokers["lists"] > 0].groupby("protocol")["list_mean"]
    means = {TITLES[str(protocol)]: float(mean) for protocol, mean in some.mean().items()}
    ours = {
        TITLES[str(protocol)]: {"mean": round(means[TITLES[str(protocol)]], 2), "from": round(low, 2), "to": round(high, 2)}
        for protocol, low, high in zip(some.min().index, some.min(), some.max(), strict=True)
    }
    published = {"D-DBR": {"mean": 2.12, "from": 1, "to": 5}, "MERC": {"mean": 1.18, "from": 1, "to": 1.6}}
    holds = all(abs(mean / float(published[name]["mean"]) - 1) <= 0.12 for name, mean in means.items())
    text = "destinations per message, mean of the brokers' means, 100 brokers of degree 6 (figure 16, within 12%)"
    return [Claim(text, {name: published[name] for name in ours}, ours, holds)]


def _duplicates(network: pd.DataFrame) -> list[Claim]:
    rows = network.groupby("protocol")["duplicate_advertisements"].max()
    ours = {TITLES[str(protocol)]: int(count) for protocol, count in rows.items()}
    holds = ours["FBR"] > 38_000 and all(count == 0 for name, count in ours.items() if name != "FBR")
    text = "copies of 100 advertisements that came to brokers which had them"
    return [Claim(text, {name: "more than 38,000" if name == "FBR" else 0 for name in ours}, ours, holds)]


def _stored(found: general.Measured) -> list[Claim]:
    full = 100 * general.SUBSCRIPTIONS_PER_BROKER
    loaded = found.network[found.network["advertisers"] == 0.6].set_index("protocol")
    ours = {
        TITLES[str(protocol)]: round(float(copies) * full / 100) for protocol, copies in loaded["copies_at_advertisers"].items()
    }
    published = {name: count for name, count in (("FBR", 5005), ("D-DBR", 1800), ("MERC", 1945)) if name in ours}
    text = "subscriptions per broker, for 3,000 issued and 60 % of the brokers with advertisements that meet them (figure 18)"
    close = abs(ours["FBR"] / published["FBR"] - 1) <= 0.1
    claims = [
        Claim(text, published, ours, ours["D-DBR"] == 1800 and close and 1800 <= ours.get("MERC", 1800) < 0.75 * ours["FBR"])
    ]
    many = found.network[found.network["advertisers"] == 0.8].set_index("protocol")["copies"]
    copies = {TITLES[str(protocol)]: round(float(value), 1) for protocol, value in many.items()}
    text = "copies of each subscription, with 80 % of the brokers (figure 17)"
    return [
        *claims,
        Claim(text, {"FBR": 221, "D-DBR": 80}, copies, abs(copies["FBR"] / 221 - 1) <= 0.1 and abs(copies["D-DBR"] - 80) <= 1),
    ]


# ---- lists


def _rows(table: pd.DataFrame, brokers: int, degree: float, share: float, shape: str = "random-graph") -> pd.DataFrame:
    drawn = (table["brokers"] == brokers) & (table["degree"] == degree) & (table["shape"] == shape)
    return table[drawn & (table["share"] == share)]


def _quantiles(table: pd.DataFrame) -> Claim:
    published = {"below 5": 0.95, "below 12": 0.99}
    ours = {
        str(shape): {
            f"below {length}": round(_share_below(_rows(table, 700, 6, 0.1, str(shape)), length), 4) for length in (5, 12)
        }
        for shape in table["shape"].unique()
    }
    text = "most lists are short: 700 brokers of degree 6, 10 % interested (figure 20), by kind of overlay"
    return Claim(text, published, ours, all(found[name] > least for found in ours.values() for name, least in published.items()))


def _share_below(rows: pd.DataFrame, length: int) -> float:
    return float(rows[rows["length"] < length]["messages"].sum() / rows["messages"].sum())


def _linear(table: pd.DataFrame, share: float) -> float:
    part: Any = table[(table["degree"] == 6) & (table["share"] == share)]
    lengths = [(int(brokers), mean_length(rows, "at_source")) for brokers, rows in part.groupby("brokers")]
    return round(float(np.corrcoef(np.array(lengths, float).T)[0, 1]), 4)
