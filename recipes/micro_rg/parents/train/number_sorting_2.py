def run(question, tools):
    first = question.split("\n", 1)[0]
    values = sorted(first.split(": ")[1].replace(",", " ").split(), key=lambda value: float(value))
    if "descending" in first:
        values = values[::-1]
    text = quoted(values)
    return text


def quoted(values):
    inner = ", ".join("'" + value + "'" for value in values)
    return "[" + inner + "]"
