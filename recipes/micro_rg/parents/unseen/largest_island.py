import re


def area(land, cell):
    if cell not in land:
        return 0
    land.remove(cell)
    i, j = cell
    return 1 + sum(area(land, near) for near in [(i + 1, j), (i - 1, j), (i, j + 1), (i, j - 1)])


def run(question, tools):
    rows = re.findall(r"^[01](?: [01])*$", question, re.MULTILINE)
    land = {(i, j) for i, row in enumerate(rows) for j, c in enumerate(row.split()) if c == "1"}
    best = max((area(land, cell) for cell in list(land)), default=0)
    final = str(best)
    return final
