def arrange(line):
    head, tail = line.rsplit(": ", 1)
    items = [item.strip() for item in tail.split(",")]
    items.sort()
    if "descending" in head:
        items.reverse()
    return items


def run(question, tools):
    out = ""
    for line in question.splitlines():
        if line.startswith("Now, sort these words"):
            out = ", ".join(arrange(line))
    out = out.replace("  ", " ")
    return out
