def turn(rows):
    size = len(rows)
    return [[rows[size - 1 - j][i] for j in range(size)] for i in range(size)]


def show(rows):
    return "\n".join(map(" ".join, rows))


def run(question, tools):
    head, body = question.split(" degrees clockwise:\n")
    angle = int(head.split()[-1])
    rows = [line.split() for line in body.split("\n\n")[0].splitlines()]
    while angle > 0:
        rows, angle = turn(rows), angle - 90
    return show(rows)
