import re


def run(question, tools):
    base, exponent = re.search(r"Compute (-?[\d.]+)\^(-?\d+)", question).groups()
    power = float(base) ** int(exponent)
    answer = f"{power:.2e}"
    return answer
