"""Results of the format before today's as they would be written today. No other script knows its names: passes were
called by their places in a chain. The program does the same in src/report/upgrade.cpp."""

FORMATS = {"triforce-bench.result/3": "triforce-bench.result/4", "triforce-bench.sweep/1": "triforce-bench.sweep/2"}
PLACES = ("draft", "inner_verify", "middle_verify")
# Of results that do not say it yet.
CHAINS = {"ar": ["full"], "triforce": ["draft", "retrieval", "full"], "retrieval": ["retrieval", "full"],
          "streaming": ["streaming", "full"], "streaming-hierarchy": ["draft", "streaming", "full"],
          "draft": ["draft", "full"], "lossy-retrieval": ["retrieval"], "lossy-streaming": ["streaming"]}


def pass_called(chain, name):
    """The pass of a chain that had this name; None: none had it. An unknown chain is empty."""
    if name == "outer_verify":
        return "full" if not chain or chain[-1] == "full" else None
    place = PLACES.index(name) if name in PLACES else len(chain)
    return chain[place] if place < len(chain) and chain[place] != "full" else None


def renamed(chain, member):
    return pass_called(chain, member) if member == "draft" or member.endswith("_verify") else member


def steps_of(old, gammas, chain):
    def step(name, gamma, ms, one_row_ms):
        return {"pass": name, "rows": 1 + ((gammas or {}).get(gamma) or 0), "ms": old.get(ms),
                "one_row_ms": old.get(one_row_ms)}
    steps = [step(name, "inner_gamma", "inner_verify_ms" if i == 1 else None, None) if i else
             step(name, None, "draft_ms", "draft_ms") for i, name in enumerate(chain) if name != "full"]
    verifies = gammas and (not chain or chain[-1] == "full")
    return [*steps, step("full", "gamma" if verifies else None,
                         "outer_verify_ms" if verifies else "autoregressive_ms", "autoregressive_ms")]


def upgrade_case(case):
    """Returns its chain."""
    if "chain" not in case and case.get("method") in CHAINS:
        case["chain"] = CHAINS[case["method"]]
    chain = case.get("chain") or []
    if case.get("phases_ms_per_round"):
        case["phases_ms_per_round"] = {renamed(chain, name): ms for name, ms in case["phases_ms_per_round"].items()
                                       if renamed(chain, name)}
    case["traffic"] = [{**one, "pass": pass_called(chain, one["pass"])} for one in case["traffic"]
                       if pass_called(chain, one["pass"])]
    case["steps"] = steps_of(case["steps"], case.get("gammas"), chain)
    return chain


def metrics_called(metric, chains):
    """A figure of a case by the names of today, one for each of the chains; itself if it was renamed for none."""
    place = metric.removesuffix("-ms").replace("-", "_")
    names = [pass_called(chain, place) for chain in chains] if metric.endswith("-ms") else []
    return [f"{name}-ms" for name in names if name] or [metric]


def upgrade_recipe(recipe, chains):
    recipe["columns"] = list(dict.fromkeys(name for metric in recipe["columns"]
                                           for name in metrics_called(metric, chains)))
    for said in recipe["directions"]:
        chain = CHAINS.get(said["side"]["method"])
        said["metric"] = metrics_called(said["metric"], [chain] if chain else chains)[0]
    for point in recipe["published"]:
        point["pass"] = pass_called(CHAINS.get(point["method"], []), point.get("pass"))


def upgrade_result(value):
    """Rewrites a document, a line or a sweep that is of the format before; returns the chains of its cases. What does
    not have the form of one is left for the schema to refuse."""
    if not isinstance(value, dict) or str(value.get("schema")) not in FORMATS:
        return []
    sweep = value["schema"].startswith("triforce-bench.sweep")
    value["schema"] = FORMATS[value["schema"]]
    try:
        if not sweep:
            return [upgrade_case(case) for case in ([value] if "case_id" in value else value["cases"])]
        chains = [CHAINS["triforce"], *(chain for row in value["cases"] for chain in upgrade_result(row["result"]))]
        for recipe in value["recipes"]:
            upgrade_recipe(recipe, sorted(chains))
    except (AttributeError, IndexError, KeyError, TypeError):
        pass
    return []
