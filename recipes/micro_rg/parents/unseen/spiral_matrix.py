import re


def peel(rows):
    if not rows:
        return []
    rest = [list(column) for column in zip(*rows[1:], strict=True)]
    return rows[0] + peel(rest[::-1])


def run(question, tools):
    rows = [line.split() for line in re.findall(r"^\d[\d ]*$", question, re.MULTILINE)]
    spiral = " ".join(peel(rows))
    spiral = spiral.replace("  ", " ")
    return spiral
