import re


def run(question, tools):
    kind, size = re.search(r"Perform (\w+) pooling .* size of (\d+)", question).groups()
    k = int(size)
    m = [[int(x) for x in line.split()] for line in re.findall(r"^\d[\d ]*$", question, re.M)]
    lines = []
    for i in range(0, len(m), k):
        line = []
        for j in range(0, len(m[0]), k):
            cells = [x for row in m[i : i + k] for x in row[j : j + k]]
            line.append(max(cells) if kind == "max" else round(sum(cells) / len(cells), 2))
        lines.append(" ".join(map(str, line)))
    answer = "\n".join(lines)
    return answer
