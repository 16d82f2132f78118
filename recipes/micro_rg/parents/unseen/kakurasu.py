import re
from itertools import product


def weigh(bits):
    return sum(k for k, bit in enumerate(bits, 1) if bit)


def run(question, tools):
    lists = re.findall(r"\[([\d, ]+)\]", question)
    row_sums, column_sums = ([int(x) for x in numbers.split(",")] for numbers in lists[:2])
    lines = list(product([0, 1], repeat=len(column_sums)))
    choices = [[line for line in lines if weigh(line) == total] for total in row_sums]
    grid = next(g for g in product(*choices) if [weigh(c) for c in zip(*g, strict=True)] == column_sums)
    answer = "\n".join(" ".join(map(str, row)) for row in grid)
    answer = answer.rstrip("\n")
    return answer
