import re
from itertools import permutations


def balanced(grid):
    return all(sum(line[:-1]) == line[-1] for line in [*grid, *zip(*grid, strict=True)])


def run(question, tools):
    table = re.search(r":\n([\d \n]+)\n", question).group(1)
    numbers = re.search(r"\[([\d, ]+)\]", question).group(1).split(", ")
    for order in permutations(numbers):
        rest = iter(order)
        filled = re.sub(r"\b0\b", lambda _, rest=rest: next(rest), table)
        if balanced([[int(x) for x in line.split()] for line in filled.split("\n")]):
            break
    return filled
