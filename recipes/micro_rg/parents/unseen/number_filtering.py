import re


def run(question, tools):
    rule = re.search(r"(Keep|Remove) all numbers (larger|smaller) than (\S+) in this list: \[(.*?)\]", question)
    action, side, limit, listed = rule.groups()
    kept = []
    for item in re.findall(r"'(.*?)'", listed):
        hit = float(item) > float(limit) if side == "larger" else float(item) < float(limit)
        if hit == (action == "Keep"):
            kept.append(item)
    result = repr(kept)
    return result
