import re


def run(question, tools):
    degrees = int(re.search(r"by (\d+) degrees", question).group(1))
    grid = [line.split() for line in question.split("\n") if re.fullmatch(r"[\d ]+", line)]
    for _ in range(degrees // 90 % 4):
        grid = [list(row) for row in zip(*grid[::-1], strict=True)]
    answer = "\n".join(" ".join(row) for row in grid)
    return answer
