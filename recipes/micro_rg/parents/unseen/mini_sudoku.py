import re
from itertools import permutations, product


def valid(g):
    boxes = [g[a][b : b + 2] + g[a + 1][b : b + 2] for a in (0, 2) for b in (0, 2)]
    return all(len(set(unit)) == 4 for unit in [*zip(*g, strict=True), *boxes])


def run(question, tools):
    rows = re.findall(r"^[1-4_](?: [1-4_]){3}$", question, re.MULTILINE)
    patterns = [row.replace("_", ".") for row in rows]
    orders = list(permutations("1234"))
    choices = [[order for order in orders if re.match(pattern, " ".join(order))] for pattern in patterns]
    grid = next(filter(valid, product(*choices)))
    solved = "\n".join(map(" ".join, grid))
    return solved
