def parse(question):
    below = question.split("below:\n")[1].split("\n\n")[0]
    return [line.split() for line in below.split("\n")]


def run(question, tools):
    grid = parse(question)
    cells = [(i, j) for i, row in enumerate(grid) for j in range(len(row))]
    zeros = [(i, j) for i, j in cells if grid[i][j] == "0"]
    for i, j in cells:
        grid[i][j] = str(min(abs(i - a) + abs(j - b) for a, b in zeros))
    text = "\n".join(" ".join(row) for row in grid)
    text = text.rstrip()
    return text
